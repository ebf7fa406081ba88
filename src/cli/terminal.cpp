// Reading and writing the standard files with system calls, so that every error is seen when and where it happens.
#include "cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/errors.h"
#include "cli/interrupt.h"

namespace anthesis::cli {
namespace {

// errno, or 0 when all of the text was written.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void prepare_standard_files() {
  std::signal(SIGPIPE, SIG_IGN);
  // In ascending order, so that each open() gets the number that is missing. Opened the wrong way round, so that using
  // them fails as using a closed file does.
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) == -1 && errno == EBADF) (void)::open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void print(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text))
    failed("standard output", "cannot be written: {}", std::strerror(error));
}

void note(std::string_view text) { draw(fmt::format("anthesis: {}\n", text)); }

void draw(std::string_view text) { (void)write_all(STDERR_FILENO, text); }

bool input_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool errors_are_terminal() { return ::isatty(STDERR_FILENO) == 1; }

Source::Source(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path == "-") {
    file_ = STDIN_FILENO;
    return;
  }
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) failed(name_, "cannot be opened: {}", std::strerror(errno));
  owned_ = true;
}

Source::~Source() {
  if (owned_) ::close(file_);
}

bool Source::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t held = buffer_.size();
  constexpr std::size_t kBlock = 1 << 16;
  buffer_.resize(held + kBlock);
  for (;;) {
    stop_if_interrupted();
    const ssize_t n = ::read(file_, buffer_.data() + held, kBlock);
    if (n < 0 && errno == EINTR) continue;
    const int error = errno;
    buffer_.resize(held + static_cast<std::size_t>(n < 0 ? 0 : n));
    if (n < 0) failed(name_, "cannot be read: {}", std::strerror(error));
    return n > 0;
  }
}

bool Source::line(std::string& text) {
  std::size_t from = begin_;
  for (;;) {
    if (const std::size_t end = buffer_.find('\n', from); end != std::string::npos) {
      text.assign(buffer_, begin_, end - begin_);
      begin_ = end + 1;
      if (text.ends_with('\r')) text.pop_back();
      return true;
    }
    const std::size_t searched = buffer_.size() - begin_;
    if (!fill()) break;
    from = begin_ + searched;
  }
  if (begin_ == buffer_.size()) return false;
  text.assign(buffer_, begin_);
  begin_ = buffer_.size();
  return true;
}

std::string Source::rest() {
  while (fill()) {
  }
  return std::exchange(buffer_, {});
}

std::string read_text_from_input(std::string_view what) {
  if (input_is_terminal()) note("reading {} from the terminal; end it with Ctrl-D", what);
  std::string text = Source("-").rest();
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace anthesis::cli
