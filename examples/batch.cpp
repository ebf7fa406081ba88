// Several requests as one continuous batch: each joins when there is room and leaves when it is done. What a request gets is
// the same, bit for bit, as what it would get alone; this program checks it.
//
//   batch [MODEL]
#include <cstdio>

#include "anthesis/engine.h"

namespace {

anthesis::Request ask(const anthesis::Model& model, const std::string& text) {
  anthesis::Request request;
  request.ids = model.tokenizer().encode(text).ids;
  request.sampling.max_new_tokens = 24;
  request.sampling.want_logprobs = true;
  return request;
}

}  // namespace

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  const std::vector<std::string> texts = {"Everyone has the right to", "Tous les êtres humains naissent", "第三条\n",
                                          "अनुच्छेद ४.\n"};

  anthesis::Engine engine(model);
  std::vector<anthesis::RequestId> ids;
  for (const std::string& text : texts) ids.push_back(engine.submit(ask(*model, text)));
  while (engine.step()) {
  }

  bool same = true;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const anthesis::Output together = engine.finish(ids[i]).outputs.front();
    const anthesis::Output alone = engine.run(ask(*model, texts[i])).outputs.front();
    for (std::size_t token = 0; token < together.logprobs.size(); ++token) {
      same = same && token < alone.logprobs.size() && together.logprobs[token].logprob == alone.logprobs[token].logprob;
    }
    same = same && together.new_ids == alone.new_ids;
    std::printf("%s|%s\n", texts[i].c_str(), together.text.c_str());
  }
  std::printf("%s\n", same ? "alone and together: the same tokens, the same bits" : "alone and together DIFFER");
  return same ? 0 : 1;
}
