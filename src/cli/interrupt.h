// Ctrl-C: the first asks the program to come to an end with what it has, a second ends it at once.
#pragma once

namespace anthesis::cli {

void catch_interrupts();
/// Whether Ctrl-C was pressed.
bool interrupted() noexcept;
/// Throws Interrupted if it was.
void stop_if_interrupted();

}  // namespace anthesis::cli
