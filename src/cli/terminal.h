// The program's three standard files: everything it reads from and writes to them goes through here.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace anthesis::cli {

/// To be called first: a closed standard file must not be mistaken for the next file that is opened, and a reader that
/// goes away must come back as an error of the write, not as a signal.
void prepare_standard_files();

/// Writes to standard output, at once. Throws Failure where that is not possible (a closed pipe, a full disk).
void print(std::string_view text);

/// One line on standard error, after "anthesis: ". What cannot be written there is lost.
void note(std::string_view text);
template <class First, class... Args>
void note(fmt::format_string<First, Args...> text, First&& first, Args&&... args) {
  note(std::string_view(fmt::format(text, std::forward<First>(first), std::forward<Args>(args)...)));
}

/// Bytes to standard error as they are: what a progress bar needs.
void draw(std::string_view text);

bool input_is_terminal();
bool errors_are_terminal();

/// A file, or standard input where the path is "-". Throws Failure with the system's reason, Interrupted on Ctrl-C.
class Source {
 public:
  explicit Source(const std::string& path);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// The next line without its end; false where there is none. Gives out lines as they come.
  bool line(std::string& text);
  /// Everything that is left.
  std::string rest();

 private:
  bool fill();

  std::string name_;
  int file_ = -1;
  bool owned_ = false;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been handed out
};

/// All of standard input as one text. One newline at its end belongs to the line, not to the text, and is taken off.
/// Where a person is typing, says so first.
std::string read_text_from_input(std::string_view what);

}  // namespace anthesis::cli
