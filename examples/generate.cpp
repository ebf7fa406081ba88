// Continues a text and streams it, as it comes, to the terminal.
//
//   generate [MODEL] [TEXT]
#include <cstdio>

#include "anthesis/engine.h"

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  const std::string text = count > 2 ? words[2] : "All human beings are born";
  anthesis::Engine engine(model);

  anthesis::Request request;
  request.ids = model->tokenizer().encode(text).ids;
  request.sampling.max_new_tokens = 40;
  request.on_token = [](const anthesis::TokenEvent& token) {
    std::printf("%s", token.text.c_str());  // whole characters only; may be empty until one is complete
    std::fflush(stdout);
  };
  std::printf("%s", text.c_str());
  const anthesis::Result result = engine.run(std::move(request));
  std::printf("\n");
  return result.outputs.front().new_ids.empty() ? 1 : 0;
}
