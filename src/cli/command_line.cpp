// CLI11 splits the arguments; numbers, errors and help are the program's own.
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/errors.h"
#include "cli/nearest.h"
#include "cli/parse.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::size_t kWidth = 100;  // of the help
constexpr std::size_t kColumn = 34;  // where its explanations begin

// Words of `text`, in lines that begin with `indent` blanks after the first, which has `column` characters already.
std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) {
  std::string result;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(" \n", begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    if (column + 1 + (end - begin) > kWidth && column > indent) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(begin, end - begin);
    column += end - begin;
    begin = end;
  }
  return result;
}

}  // namespace

struct CommandLine::Parser {
  CLI::App app;
};

CommandLine::CommandLine(std::string_view command, std::string_view usage, std::string_view about, std::string_view examples)
    : command_(command), usage_(usage), about_(about), examples_(examples), parser_(std::make_unique<Parser>()) {
  parser_->app.set_help_flag("-h,--help");
  parser_->app.allow_extras();  // so that parse() can say what was probably meant
}

CommandLine::~CommandLine() = default;

void CommandLine::group(std::string_view title) { entries_.push_back({"", "", std::string(title)}); }

void CommandLine::add(const std::string& names, const std::string& value, const std::string& help) {
  entries_.push_back({names, value, help});
}

void CommandLine::flag(const std::string& names, bool& target, const std::string& help) {
  add(names, "", help);
  parser_->app.add_flag(names, target);
}

void CommandLine::text(const std::string& names, const std::string& value, std::optional<std::string>& target,
                       const std::string& help) {
  add(names, value, help);
  parser_->app
      .add_option(names,
                  [&target](const CLI::results_t& results) {
                    target = results.back();
                    return true;
                  })
      ->expected(1);
}

void CommandLine::texts(const std::string& names, const std::string& value, std::vector<std::string>& target,
                        const std::string& help) {
  add(names, value, help);
  parser_->app
      .add_option(names,
                  [&target](const CLI::results_t& results) {
                    target = results;
                    return true;
                  })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void CommandLine::integer(const std::string& names, const std::string& value, std::int64_t& target, std::int64_t least,
                          std::int64_t most, const std::string& help) {
  add(names, value, help);
  parser_->app
      .add_option(names,
                  [this, names, &target, least, most](const CLI::results_t& results) {
                    const std::optional<std::int64_t> number = parse_integer(results.back());
                    if (!number || *number < least || *number > most) {
                      asked_wrongly(command_, "{} is \"{}\", expected a whole number from {} to {}",
                                    names.substr(names.find("--")), results.back(), least, most);
                    }
                    target = *number;
                    return true;
                  })
      ->expected(1);
}

void CommandLine::positional(const std::string& name, std::optional<std::string>& target) {
  parser_->app
      .add_option(name,
                  [&target](const CLI::results_t& results) {
                    target = results.back();
                    return true;
                  })
      ->expected(1);
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
    parser_->app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    print(help());
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--threads: 1 required TEXT missing" and "--threads: At Most 1 required but received 2"
    const std::string text = error.what();
    const std::string option = text.substr(0, text.find(':'));
    refuse(option + (text.find("missing") != std::string::npos ? " needs a value" : " may be given once"));
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
  const std::vector<std::string> unknown = parser_->app.remaining();
  // A mistyped option leaves its value behind as an argument too many: the option is what to talk about.
  const auto option = std::find_if(unknown.begin(), unknown.end(), [](const auto& text) { return text.starts_with('-'); });
  if (option != unknown.end()) {
    std::vector<std::string> names;
    for (const CLI::Option* known : parser_->app.get_options()) {
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = option->substr(0, option->find('='));
    refuse(fmt::format("there is no option {}{}", name, did_you_mean(name, names)));
  }
  if (!unknown.empty())
    refuse(fmt::format("there is an argument too many, \"{}\" (a text with blanks needs quotes)", unknown.front()));
  return true;
}

std::vector<std::string> CommandLine::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : parser_->app.parse_order()) {
    if (!option->get_lnames().empty()) names.push_back(option->get_lnames().front());
  }
  return names;
}

void CommandLine::refuse(const std::string& text) const {
  throw UsageError(
      fmt::format("[{}] {}{} anthesis {} --help", command_, text, text.ends_with('?') ? " See" : "; see", command_));
}

std::string CommandLine::help() const {
  std::string text = fmt::format("usage: anthesis {} {}\n", command_, usage_);
  for (std::size_t begin = 0; begin < about_.size();) {  // paragraphs
    const std::size_t end = std::min(about_.find("\n\n", begin), about_.size());
    text += '\n' + wrapped(std::string_view(about_).substr(begin, end - begin), 0, 0) + '\n';
    begin = end + 2;
  }
  for (const Entry& entry : entries_) {
    if (entry.names.empty()) {
      text += fmt::format("\n{}:\n", entry.help);
      continue;
    }
    // "-p,--prompt" becomes "-p, --prompt"; names without a short one stand under the long ones.
    std::string left = entry.names.starts_with("--") ? "      " + entry.names : "  " + entry.names;
    if (const std::size_t comma = left.find(','); comma != std::string::npos) left.insert(comma + 1, " ");
    if (!entry.value.empty()) left += ' ' + entry.value;
    if (left.size() + 2 > kColumn) {
      left += '\n' + std::string(kColumn, ' ');
    } else {
      left.resize(kColumn, ' ');
    }
    text += left + wrapped(entry.help, kColumn, kColumn) + '\n';
  }
  return text + "\nexamples:\n" + examples_ + '\n';
}

}  // namespace anthesis::cli
