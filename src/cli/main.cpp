// Nothing but the way in.
#include "cli/interrupt.h"
#include "cli/program.h"
#include "cli/terminal.h"

int main(int count, char** words) {
  anthesis::cli::prepare_standard_files();
  anthesis::cli::catch_interrupts();
  return anthesis::cli::run_program({words + (count > 0), words + count});
}
