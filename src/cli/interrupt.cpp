// The handler sets a flag; loops ask for it between two steps.
#include "cli/interrupt.h"

#include <csignal>

#include "cli/errors.h"

namespace anthesis::cli {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { asked_to_stop = 1; };
  // Back to the default after the first, so that a second one always works; no SA_RESTART, so that a read returns.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  // A program started in the background with Ctrl-C ignored goes on ignoring it.
  struct sigaction before = {};
  if (::sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() noexcept { return asked_to_stop != 0; }

void stop_if_interrupted() {
  if (interrupted()) throw Interrupted{};
}

}  // namespace anthesis::cli
