// A project that knows Anthesis by find_package only: continues a sentence with the model it is given.
#include <anthesis/anthesis.h>

#include <iostream>

int main(int, char** words) {
  const auto model = anthesis::Model::load(words[1]);
  anthesis::Engine engine(model);
  anthesis::Request request;
  request.ids = model->tokenizer().encode("All human beings are born").ids;
  std::cout << "All human beings are born" << engine.run(std::move(request)).outputs.front().text << "\n";
}
