// The table of commands.
#include "cli/program.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <new>
#include <string_view>

#include "anthesis/error.h"
#include "anthesis/model.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/nearest.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

struct Command {
  std::string_view name, what;
  int (*run)(const Arguments&);
};

constexpr std::array kCommands = {
    Command{"generate", "continue a text, or many as one batch", generate},
    Command{"values", "write what happens inside a forward pass to a file", values},
    Command{"score", "loss and perplexity of a text", score},
    Command{"tokenize", "text to token ids", tokenize},
    Command{"detokenize", "token ids to text", detokenize},
    Command{"info", "what a model is: configuration, sizes, files", info},
    Command{"adapters", "what LoRA adapters are, or why they are refused", adapters},
    Command{"merge", "fold adapters into a copy of a model", merge},
    Command{"bench", "how fast it runs here, and how near the machine's limit", bench},
    Command{"demo", "what all this is good for, in a minute", demo},
};

std::string help() {
  std::string text = fmt::format(
      "usage: anthesis COMMAND [MODEL] [options]\n\n"
      "Anthesis {} runs BLOOM language models. MODEL is a folder with config.json or the id of a model in the local\n"
      "Hugging Face cache; without it the model that comes with the program is used.\n\ncommands:\n",
      version());
  for (const Command& command : kCommands) text += fmt::format("  {:<12} {}\n", command.name, command.what);
  text +=
      "\n`anthesis COMMAND --help` explains one. Results go to standard output, everything else to standard error.\n"
      "Exit codes: 0 done, 1 it failed, 2 it was asked wrongly, 130 Ctrl-C.\n\n"
      "example:\n  anthesis generate -p 'All human beings are born'\n";
  return text;
}

int run_command(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    draw(help());
    return kAskedWrongly;
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "help" && !arguments.empty()) {  // help COMMAND
    name = arguments.front();
    arguments = {"--help"};
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print(help());
    return kDone;
  }
  if (name == "--version") {
    print(fmt::format("anthesis {}\n", version()));
    return kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(arguments);
    names.emplace_back(command.name);
  }
  const std::string meant = did_you_mean(name, names);
  asked_wrongly("anthesis", "there is no command {}{}{} anthesis --help", name, meant, meant.empty() ? "; see" : " See");
}

int report(const char* what, int code) {
  note("{}", what);
  return code;
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) noexcept {
  try {
    return run_command(arguments);
  } catch (const Interrupted&) {
    return report("interrupted", kInterrupted);
  } catch (const UsageError& error) {
    return report(error.what(), kAskedWrongly);
  } catch (const InvalidArgument& error) {
    return report(error.what(), kAskedWrongly);
  } catch (const std::bad_alloc&) {
    return report("[memory] there is not enough of it", kFailed);
  } catch (const std::exception& error) {
    return report(error.what(), kFailed);
  }
}

}  // namespace anthesis::cli
