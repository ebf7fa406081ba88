// The commands: each takes the arguments after its name and returns the exit code. They throw what program.cpp turns into
// a line on standard error and an exit code.
#pragma once

#include <string>
#include <vector>

namespace anthesis::cli {

using Arguments = std::vector<std::string>;

int generate(const Arguments& arguments);
int values(const Arguments& arguments);
int tokenize(const Arguments& arguments);
int detokenize(const Arguments& arguments);
int score(const Arguments& arguments);
int info(const Arguments& arguments);
int adapters(const Arguments& arguments);
int merge(const Arguments& arguments);
int bench(const Arguments& arguments);
int demo(const Arguments& arguments);

}  // namespace anthesis::cli
