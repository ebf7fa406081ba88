// The program as a whole: finds the command, runs it, and turns what it throws into a line and an exit code.
#pragma once

#include <string>
#include <vector>

namespace anthesis::cli {

/// `arguments` without the program's name; returns the exit code: 0 done, 1 it failed, 2 it was asked wrongly, 130 Ctrl-C.
int run_program(const std::vector<std::string>& arguments) noexcept;

}  // namespace anthesis::cli
