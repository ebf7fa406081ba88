// Runs the built program as its users do: as a process with arguments, standard files and signals. It is told nothing of the
// program's insides.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace program {

using Json = nlohmann::json;
namespace fs = std::filesystem;

inline const fs::path kSource = ANTHESIS_SOURCE_DIR;
inline const fs::path kGoldens = kSource / "tests/data/goldens";

/// Where standard output leads.
enum class Output { kept, closed, full_disk, closed_pipe };

struct Process {
  std::vector<std::string> arguments;
  std::string input;
  Output output = Output::kept;
  std::string
      interrupt_after;  ///< Ctrl-C as soon as this stands on standard output (or, if it is not there, on standard error)
  bool keep_input_open = false;
  std::vector<std::pair<std::string, std::string>> environment;
};

struct Outcome {
  std::string out, err;
  int code = 0;  ///< exit code, or minus the signal that ended it

  [[nodiscard]] Json json() const { return Json::parse(out); }
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  }
  [[nodiscard]] bool says(std::string_view text) const { return err.find(text) != std::string::npos; }
};

inline Outcome run(const Process& process) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  std::vector<std::string> words = {ANTHESIS_PROGRAM};
  words.insert(words.end(), process.arguments.begin(), process.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (process.output == Output::kept) dup2(out[1], STDOUT_FILENO);
    if (process.output == Output::closed) close(STDOUT_FILENO);
    if (process.output == Output::full_disk) dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    if (process.output == Output::closed_pipe) {
      int ends[2];
      if (pipe(ends) == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
      }
    }
    signal(SIGPIPE, SIG_DFL);
    setenv("HF_HOME", "/nonexistent", 1);
    unsetenv("HF_HUB_CACHE");
    for (const auto& [name, value] : process.environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  signal(SIGPIPE, SIG_IGN);  // a program need not read what it is given

  Outcome outcome;
  std::size_t sent = 0;
  bool interrupted = process.interrupt_after.empty();
  int input = in[1];
  std::vector<pollfd> watched = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    std::vector<pollfd> all = watched;
    if (input >= 0) all.push_back({input, POLLOUT, 0});
    if (poll(all.data(), all.size(), 120'000) <= 0) {
      kill(child, SIGKILL);
      break;
    }
    if (input >= 0 && all[2].revents != 0) {
      const ssize_t n =
          sent < process.input.size() ? write(input, process.input.data() + sent, process.input.size() - sent) : 0;
      sent = n < 0 ? process.input.size() : sent + static_cast<std::size_t>(n);
      if (sent == process.input.size()) {
        if (!process.keep_input_open) close(input);
        input = process.keep_input_open ? -2 - input : -1;  // remembered, but no longer watched
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (all[static_cast<std::size_t>(i)].revents == 0) continue;
      char block[1 << 16];
      const ssize_t n = read(all[static_cast<std::size_t>(i)].fd, block, sizeof block);
      if (n > 0) {
        (i == 0 ? outcome.out : outcome.err).append(block, static_cast<std::size_t>(n));
      } else {
        watched[static_cast<std::size_t>(i)].fd = -1;
      }
    }
    if (!interrupted && (outcome.out + outcome.err).find(process.interrupt_after) != std::string::npos) {
      interrupted = true;
      kill(child, SIGINT);
    }
  }
  if (input <= -2) close(-2 - input);
  if (input >= 0) close(input);
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return outcome;
}

inline Outcome run(std::vector<std::string> arguments, std::string input = "") {
  Process process;
  process.arguments = std::move(arguments);
  process.input = std::move(input);
  return run(process);
}

/// A folder of a test's own, taken away with it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "anthesis-cli-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

 private:
  fs::path path_;
};

inline Json read_json(const fs::path& file) {
  std::ifstream stream(file);
  return Json::parse(stream);
}

inline std::string model(const std::string& name) { return (kGoldens / "models" / name).string(); }
inline std::string demo_model() { return (kSource / "demo/model").string(); }

/// "5 6 7"
inline std::string ids_text(const Json& ids) {
  std::string text;
  for (const auto& id : ids) text.append(text.empty() ? "" : " ").append(std::to_string(id.get<int>()));
  return text;
}

}  // namespace program
