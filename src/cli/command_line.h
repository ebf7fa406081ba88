// The options of one command: reading them, explaining them, and answering a wrong one with the nearest right one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis::cli {

/// Options are declared with the variables they are read into, then parse() is called once; the variables have to
/// outlive it. An option that takes a value takes exactly one; where several make sense it is repeated.
class CommandLine {
 public:
  /// `about` is shown between usage and options, `examples` at the end.
  CommandLine(std::string_view command, std::string_view usage, std::string_view about, std::string_view examples);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Starts a new part of the help's list of options.
  void group(std::string_view title);
  /// `names` as "-p,--prompt"; `value` is what the help calls the value.
  void flag(const std::string& names, bool& target, const std::string& help);
  void text(const std::string& names, const std::string& value, std::optional<std::string>& target, const std::string& help);
  void texts(const std::string& names, const std::string& value, std::vector<std::string>& target, const std::string& help);
  /// A whole number from `least` to `most`.
  void integer(const std::string& names, const std::string& value, std::int64_t& target, std::int64_t least, std::int64_t most,
               const std::string& help);
  /// Arguments without a dash, in order. Named in the usage only.
  void positional(const std::string& name, std::optional<std::string>& target);

  /// False where help was asked for, and was printed. Throws UsageError.
  bool parse(const std::vector<std::string>& arguments);
  /// After parse(): the long names of the options that were given, as often and in the order as they were.
  [[nodiscard]] std::vector<std::string> given() const;

  [[nodiscard]] const std::string& command() const { return command_; }
  /// Throws UsageError: `[command] TEXT; see anthesis command --help`.
  [[noreturn]] void refuse(const std::string& text) const;

 private:
  struct Parser;  // CLI11
  struct Entry {
    std::string names, value, help;  // a title where names and value are empty
  };
  void add(const std::string& names, const std::string& value, const std::string& help);
  [[nodiscard]] std::string help() const;

  std::string command_, usage_, about_, examples_;
  std::vector<Entry> entries_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace anthesis::cli
