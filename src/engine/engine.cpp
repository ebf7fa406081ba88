// The engine: takes requests, runs passes over what the scheduler chooses, hands out what they give.
#include "anthesis/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "core/fail.h"
#include "core/float_environment.h"
#include "engine/generation.h"
#include "engine/job.h"
#include "engine/past.h"
#include "engine/scheduler.h"
#include "engine/validate.h"
#include "kernels/dispatch.h"
#include "model/bloom.h"

namespace anthesis {
namespace {

KvGeometry geometry_of(const BloomConfig& config) { return {config.n_layer, config.n_head, config.head_dim()}; }

// Pages for this many tokens; by default a quarter of the machine's memory, of which only what is used is taken.
std::int64_t page_budget(const BloomConfig& config, const EngineOptions& options) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;
  const std::int64_t page_bytes = geometry_of(config).page_floats() * static_cast<std::int64_t>(sizeof(float));
  std::int64_t tokens = options.kv_tokens;
  if (tokens == 0) {
    const std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    tokens = std::clamp<std::int64_t>(memory / 4 / page_bytes * kPageTokens, kPageTokens, kMostTokens);
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / page_bytes;  // more bytes than can be counted
  if (tokens / kPageTokens >= most) {
    fail<InvalidArgument>("engine", "kv_tokens is {}, expected fewer than {} pages of {} tokens, {} bytes each", tokens, most,
                          kPageTokens, page_bytes);
  }
  return (tokens + kPageTokens - 1) / kPageTokens;
}

void check(const EngineOptions& options) {
  const auto at_least = [](std::string_view what, std::int64_t found, std::int64_t least) {
    if (found < least) fail<InvalidArgument>("engine", "{} is {}, expected at least {}", what, found, least);
  };
  at_least("threads", options.threads, 0);
  at_least("rows_per_step", options.rows_per_step, 1);
  at_least("max_sequences", options.max_sequences, 1);
  at_least("kv_tokens", options.kv_tokens, 0);
}

// Sets a flag for the length of a step, whatever ends it.
class Stepping {
 public:
  explicit Stepping(bool& flag) : flag_(flag) { flag_ = true; }
  ~Stepping() { flag_ = false; }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

 private:
  bool& flag_;
};

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> model_, const EngineOptions& options_)
      : model(std::move(model_)),
        config(model->config()),
        options(options_),
        threads(options.threads, options.affinity),
        device(kernels::selected(), threads, options.profile.get()),
        group(single_group()),
        pool(std::make_shared<KvPool>(geometry_of(config), page_budget(config, options))),
        scheduler(config, options, pool),
        scratch(config),
        plan(config.n_layer),
        adapters(device),
        generation(*model) {
    options.threads = threads.size();
  }

  KvSequence past_of(const Request& request) const;
  void check_size(Job& job) const;
  void prepare_edits(Job& job) const;
  void lay_out(std::span<const Work> work, const Route& route);
  void lay_out_logits(std::span<const Work> work);
  void mark_absent(std::span<const Work> work);
  void run(std::span<const Work> work, const Route& route);
  void run_all(const std::vector<Work>& work);
  void deliver(const Work& work, std::int64_t first_logit_row, std::int64_t logit_rows_of_work);
  void hand_out_logits(Job& job, std::int64_t first_row, std::int64_t first_logit_row, std::int64_t count);
  void fail_job(Job& job, const std::exception_ptr& error);
  void check_edits(Job& job);
  void retire(RequestId id);
  void cancel_what_was_asked();

  std::shared_ptr<const Model> model;
  const BloomConfig& config;
  EngineOptions options;
  ThreadPool threads;
  Device device;
  std::unique_ptr<Group> group;
  std::shared_ptr<KvPool> pool;
  Scheduler scheduler;
  Scratch scratch;
  Plan plan;
  AdapterRows adapters;
  Generation generation;

  // The pass that is being laid out; kept from step to step, so that nothing is allocated anew.
  std::vector<StepSequence> sequences;
  std::vector<std::int32_t> ids;
  std::vector<const float*> embeddings;
  std::vector<std::int64_t> logit_rows;
  std::vector<std::int64_t> first_logit_row;  // per work
  std::set<RequestId> over;                   // ended in this pass
  bool any_embeddings = false;

  bool stepping = false;
  RequestId next_id = 1;
  std::map<RequestId, Result> results;
  EngineStatistics statistics;

  std::mutex mutex;  // of the two sets, which cancel() reads and writes from any thread
  std::set<RequestId> live;
  std::set<RequestId> to_cancel;
};

// A new sequence that shares the pages of the request's past, or an empty one.
KvSequence Engine::Impl::past_of(const Request& request) const {
  if (!request.past) return KvSequence(pool);
  const auto* shared = dynamic_cast<const SharedKeyValues*>(request.past.get());
  if (shared == nullptr || shared->sequence().pool() != pool) {
    fail<InvalidArgument>("engine", "past was not made by this engine, expected KV that one of its results handed back");
  }
  return shared->sequence().fork();
}

// What could never fit is refused at once, with the numbers.
void Engine::Impl::check_size(Job& job) const {
  const SamplingOptions& sampling = job.request.sampling;
  const std::int64_t sequences_ = std::max(sampling.num_beams, sampling.num_return_sequences);
  // Any number may be asked for: the sum fits in 64 bits without a sign, the product with the sequences need not.
  const std::uint64_t fed = static_cast<std::uint64_t>(job.past_rows + job.input_rows) +
                            static_cast<std::uint64_t>(std::max<std::int64_t>(0, sampling.max_new_tokens - 1));
  constexpr auto kPage = static_cast<std::uint64_t>(kPageTokens);
  const std::uint64_t pages = fed / kPage + (fed % kPage == 0 ? 0 : 1);
  if (pages > static_cast<std::uint64_t>(pool->pages() / sequences_)) {
    fail<ResourceError>("engine",
                        "the request needs KV for {} tokens in {} sequences, {} pages of {} tokens in each; the engine has {} "
                        "pages; raise kv_tokens or ask for less",
                        fed, sequences_, pages, kPageTokens, pool->pages());
  }
  job.most_pages = static_cast<std::int64_t>(pages) * sequences_;
}

// What is written to and looked at, and what follows from it for the order in which the request runs.
void Engine::Impl::prepare_edits(Job& job) const {
  const Request& request = job.request;
  job.edits = request.compiled_edits;
  if (!request.edits.empty()) {
    EditScope scope{config};
    scope.past = job.past_rows;
    scope.positions = job.input_rows;
    scope.steps = std::max<std::int64_t>(1, request.sampling.max_new_tokens);
    scope.first_layer = request.start_layer;
    if (request.stop_after_layer) scope.end_layer = *request.stop_after_layer + 1;
    job.edits = std::make_shared<const CompiledEdits>(request.edits, scope);
  }
  if (job.edits && job.edits->empty()) job.edits.reset();
  if (request.visitor || job.edits) job.watch.emplace(job.edits.get(), request.visitor.get(), config.n_layer);
  job.together = job.watch && job.watch->late() != nullptr;
  job.whole = job.together || (job.edits && job.edits->writes_pattern());
  job.pinned = request.visitor && request.visitor->writes();
}

// ---- one pass

void Engine::Impl::lay_out(std::span<const Work> work, const Route& route) {
  sequences.clear();
  ids.clear();
  embeddings.clear();
  any_embeddings = false;
  plan.clear(route);
  adapters.clear();
  StepLimits limits;
  std::int64_t unwatched = 0;

  for (const Work& item : work) {
    Job& job = *item.job;
    const Branch& branch = job.branches[item.branch];
    const auto first_row = static_cast<std::int64_t>(ids.size());
    const std::int64_t given = job.request.embeddings.shape.empty() ? 0 : job.input_rows;
    for (std::int64_t row = item.first; row < item.first + item.rows; ++row) {
      const bool embedded = row < given;
      any_embeddings = any_embeddings || embedded;
      ids.push_back(embedded ? 0 : branch.tokens[branch.tokens.size() - static_cast<std::size_t>(job.known(branch) - row)]);
      embeddings.push_back(embedded ? job.request.embeddings.data.data() + row * config.hidden_size : nullptr);
    }
    adapters.add(job.request.adapter ? &job.request.adapter->weights() : nullptr, item.rows);
    sequences.push_back({&branch.kv, first_row, item.rows, job.past_rows + item.first,
                         job.request.head_mask.empty() ? nullptr : job.request.head_mask.data()});

    // Rows that are computed again after a preemption are edited again, but nobody looks.
    const bool again = item.first < job.delivered;
    const std::int64_t keys = job.past_rows + item.first + item.rows;
    if (job.watch && (!again || job.edits)) {
      plan.add({&*job.watch,
                first_row,
                item.rows,
                0,
                0,
                job.step_of(item.first),
                job.past_rows + item.first,
                static_cast<std::int64_t>(sequences.size()) - 1,
                again,
                {}});
    } else {
      ++unwatched;
    }
    if ((job.watch && job.watch->wants_pattern(again)) || !branch.kv.absent().empty()) {
      limits.pattern_floats += config.n_head * item.rows * round_up(keys, kLanes);
    }
    limits.deltas = limits.deltas || (job.watch && job.watch->wants_deltas());
    limits.keys = std::max(limits.keys, keys);
  }
  plan.set_unwatched(unwatched);
  limits.rows = static_cast<std::int64_t>(ids.size());
  limits.sequences = static_cast<std::int64_t>(sequences.size());
  limits.keys = round_up(limits.keys, 1024);  // so that growing sequences seldom grow the scratch
  scratch.reserve(limits, device);
}

// Which rows' logits are asked for: decided when the pass has come to the head.
void Engine::Impl::lay_out_logits(std::span<const Work> work) {
  logit_rows.clear();
  first_logit_row.clear();
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Work& item = work[i];
    const Job& job = *item.job;
    const bool again = item.first < job.delivered;
    const std::int64_t end = item.first + item.rows, first_row = sequences[i].first_row;
    const auto before = static_cast<std::int64_t>(logit_rows.size());
    first_logit_row.push_back(before);
    if (plan.end_layer() == config.n_layer) {
      const bool wants_last = job.request.logits == LogitRows::last || (job.watch && job.watch->logits() == LogitRows::last);
      if (!again && job.wants_all_logits(item.first)) {
        for (std::int64_t row = 0; row < item.rows; ++row) logit_rows.push_back(first_row + row);
      } else if (end == job.known(job.branches[item.branch]) && (job.sampler || (wants_last && !again))) {
        logit_rows.push_back(first_row + item.rows - 1);
      }
    }
    plan.set_logits(static_cast<std::int64_t>(i), before, static_cast<std::int64_t>(logit_rows.size()) - before);
  }
  StepLimits limits;
  limits.logit_rows = static_cast<std::int64_t>(logit_rows.size());
  scratch.reserve(limits, device);
  adapters.set_head_rows(logit_rows);
}

// Layers that a pass left out have no keys of its rows.
void Engine::Impl::mark_absent(std::span<const Work> work) {
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    const bool ran = layer >= plan.first_layer() && layer < plan.end_layer() && plan.passage(layer) == Passage::run;
    if (ran) continue;
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[i].job->branches[work[i].branch].kv.mark_absent(layer, sequences[i].past, sequences[i].past + sequences[i].rows);
    }
  }
}

void Engine::Impl::run(std::span<const Work> work, const Route& route) {
  lay_out(work, route);
  const Step step{device,
                  *group,
                  scratch,
                  plan,
                  adapters,
                  sequences,
                  static_cast<std::int64_t>(ids.size()),
                  ids.data(),
                  any_embeddings ? std::span<const float* const>(embeddings) : std::span<const float* const>()};
  bool done = model->network().forward(step);
  if (done) mark_absent(work);
  for (bool more = done; done && more; more = plan.wants_more_logits()) {
    lay_out_logits(work);
    done = model->network().project(logit_rows, step);
  }
  ++statistics.steps;
  statistics.rows += step.rows;

  for (const WatchedRows& watched : plan.watched()) {
    if (watched.error) fail_job(*work[static_cast<std::size_t>(watched.sequence)].job, watched.error);
  }
  const Profile::Timer timer(options.profile.get(), {.name = "choose tokens", .rows = static_cast<std::int64_t>(work.size())});
  for (std::size_t i = 0; done && i < work.size(); ++i) {
    if (work[i].job->over) continue;
    const std::int64_t next = i + 1 < work.size() ? first_logit_row[i + 1] : static_cast<std::int64_t>(logit_rows.size());
    try {
      deliver(work[i], first_logit_row[i], next - first_logit_row[i]);
    } catch (...) {
      fail_job(*work[i].job, std::current_exception());
    }
  }
}

// One pass for all that is due; work on another route has a pass of its own.
void Engine::Impl::run_all(const std::vector<Work>& work) {
  std::vector<std::pair<Route, std::vector<Work>>> passes;
  for (const Work& item : work) {
    Route route = item.job->route(item.first, config.n_layer);
    const auto same = std::find_if(passes.begin(), passes.end(), [&](const auto& pass) { return pass.first == route; });
    if (same != passes.end()) {
      same->second.push_back(item);
    } else {
      passes.emplace_back(std::move(route), std::vector<Work>{item});
    }
  }
  for (const auto& [route, items] : passes) run(items, route);
  for (const Work& item : work) {
    if (item.job->over) over.insert(item.job->id);
  }
  for (const RequestId id : over) retire(id);
  over.clear();
}

// What a pass gave to one branch: logits that were asked for, and, where all it knows is computed, its next token.
void Engine::Impl::deliver(const Work& work, std::int64_t first_logit, std::int64_t logit_count) {
  Job& job = *work.job;
  const std::int64_t end = work.first + work.rows;
  if (work.branch == 0 && end > job.delivered) {
    if (job.request.logits != LogitRows::none && work.first < job.input_rows) {
      hand_out_logits(job, work.first, first_logit, logit_count);
    }
    job.delivered = end;
    statistics.prompt_tokens += std::max<std::int64_t>(0, std::min(end, job.input_rows) - work.first);
    if (job.request.on_progress && work.first < job.input_rows)
      job.request.on_progress(std::min(end, job.input_rows), job.input_rows);
  }
  if (end < job.known(job.branches[work.branch])) return;
  if (!job.sampler) {
    generation.end(job, FinishReason::length);
    return;
  }
  const Matrix logits = scratch.logits(static_cast<std::int64_t>(logit_rows.size()));
  generation.advance(job, work.branch,
                     {logits.row(first_logit + logit_count - 1), static_cast<std::size_t>(config.vocab_size)});
  ++statistics.new_tokens;
}

void Engine::Impl::hand_out_logits(Job& job, std::int64_t first_row, std::int64_t first_logit, std::int64_t count) {
  const bool all = job.request.logits == LogitRows::all;
  if (!all && count > 1) {  // a watcher has every row, the result the last one
    first_logit += count - 1;
    count = 1;
  }
  if (count == 0) return;
  if (job.result.logits.shape.empty()) job.result.logits = Tensor({all ? job.input_rows : 1, config.vocab_size});
  const Matrix logits = scratch.logits(static_cast<std::int64_t>(logit_rows.size()));
  for (std::int64_t r = 0; r < count; ++r) {
    const float* from = logits.row(first_logit + r);
    std::copy(from, from + config.vocab_size, job.result.logits.data.begin() + ((all ? first_row : 0) + r) * config.vocab_size);
  }
}

void Engine::Impl::fail_job(Job& job, const std::exception_ptr& error) {
  if (job.over) return;
  try {
    std::rethrow_exception(error);
  } catch (const StopPass&) {
    generation.end(job, FinishReason::cancelled);
  } catch (...) {
    job.result.error = error;
    generation.end(job, FinishReason::error);
  }
}

// An edit for a step that never came is an error, but loses nothing.
void Engine::Impl::check_edits(Job& job) {
  const bool whole = !job.result.outputs.empty() && job.result.outputs.front().finish_reason != FinishReason::cancelled;
  if (!job.edits || job.result.error || !whole) return;
  std::int64_t rows = 0;
  for (const Branch& branch : job.branches) rows = std::max(rows, job.computed(branch));
  const std::string missed = job.edits->unreached(job.step_of(rows - 1) + 1);
  if (missed.empty()) return;
  job.result.error = std::make_exception_ptr(UnreachedEdit("[edits] " + missed, nullptr));
}

// Takes a finished job out and keeps its result until it is asked for.
void Engine::Impl::retire(RequestId id) {
  const std::unique_ptr<Job> job = scheduler.remove(id);
  const bool failed = job->result.error != nullptr;
  check_edits(*job);
  if (job->request.keep_past && !failed) {
    job->result.past = std::make_shared<SharedKeyValues>(std::move(job->branches.front().kv));
  }
  results.emplace(id, std::move(job->result));
  const std::scoped_lock lock(mutex);
  live.erase(id);
}

void Engine::Impl::cancel_what_was_asked() {
  std::set<RequestId> asked;
  {
    const std::scoped_lock lock(mutex);
    asked.swap(to_cancel);
  }
  for (const RequestId id : asked) {
    Job* job = scheduler.find(id);
    if (job == nullptr) continue;
    generation.end(*job, FinishReason::cancelled);
    retire(id);
  }
}

// ---- the public face

Engine::Engine(std::shared_ptr<const Model> model, EngineOptions options) {
  if (!model) fail<InvalidArgument>("engine", "the model is null, expected a loaded one");
  check(options);
  impl_ = std::make_unique<Impl>(std::move(model), options);
}

Engine::~Engine() = default;

RequestId Engine::submit(Request request) {
  validate(request, impl_->model->config(), impl_->model->has_tokenizer());
  if (request.adapter && &request.adapter->model() != impl_->model.get()) {
    fail<InvalidArgument>("request", "the adapter {} was loaded for another model, expected one for the engine's own",
                          request.adapter->info().name);
  }
  auto job = std::make_unique<Job>();
  job->request = std::move(request);
  const Request& asked = job->request;
  KvSequence kv = impl_->past_of(asked);
  job->past_rows = kv.length();
  job->input_rows = asked.embeddings.shape.empty() ? static_cast<std::int64_t>(asked.ids.size()) : asked.embeddings.shape[0];
  impl_->check_size(*job);
  if (asked.head_mask.size() == static_cast<std::size_t>(impl_->config.n_head)) {
    for (std::int64_t layer = 1; layer < impl_->config.n_layer; ++layer) {
      job->request.head_mask.insert(job->request.head_mask.end(), job->request.head_mask.begin(),
                                    job->request.head_mask.begin() + impl_->config.n_head);
    }
  }
  impl_->prepare_edits(*job);
  impl_->generation.prepare(*job, std::move(kv));
  job->id = impl_->next_id++;
  const RequestId id = job->id;
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->live.insert(id);
  }
  impl_->scheduler.enqueue(std::move(job));
  return id;
}

bool Engine::cancel(RequestId id) {
  const std::scoped_lock lock(impl_->mutex);
  if (!impl_->live.contains(id)) return false;
  impl_->to_cancel.insert(id);
  return true;
}

bool Engine::step() {
  // A callback of this very step may submit and cancel, but a pass inside a pass would overwrite the one around it.
  if (impl_->stepping)
    fail<InvalidArgument>("engine", "step was called from a callback of a step, expected submit or cancel at most");
  const Stepping mark(impl_->stepping);
  const auto start = std::chrono::steady_clock::now();
  const Profile::Timer timer(impl_->options.profile.get(), {.name = "step"});
  const FloatEnvironment guard;
  impl_->cancel_what_was_asked();
  const std::vector<Work>& work = impl_->scheduler.next();
  if (!work.empty()) {
    impl_->run_all(work);
  } else if (Job* job = impl_->scheduler.hopeless(); job != nullptr) {
    try {
      fail<ResourceError>(
          "engine", "no KV pages are left for the request: results that were handed out hold {} of {}; let go of their past",
          impl_->pool->pages() - impl_->pool->free_pages(), impl_->pool->pages());
    } catch (...) {
      impl_->fail_job(*job, std::current_exception());
    }
    impl_->retire(job->id);
  }
  impl_->statistics.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return !impl_->scheduler.empty();
}

bool Engine::idle() const noexcept { return impl_->scheduler.empty(); }

std::optional<Result> Engine::take(RequestId id) {
  if (const auto found = impl_->results.find(id); found != impl_->results.end()) {
    Result result = std::move(found->second);
    impl_->results.erase(found);
    return result;
  }
  const std::scoped_lock lock(impl_->mutex);
  if (!impl_->live.contains(id))
    fail<InvalidArgument>("engine", "request {} was never submitted, or its result was taken already", id);
  return std::nullopt;
}

Result Engine::finish(RequestId id) {
  while (true) {
    std::optional<Result> result = take(id);
    if (!result) {
      step();
    } else if (result->error) {
      try {
        std::rethrow_exception(result->error);
      } catch (const UnreachedEdit& missed) {
        throw UnreachedEdit(missed.what(), std::make_shared<Result>(std::move(*result)));
      }
    } else {
      return std::move(*result);
    }
  }
}

Result Engine::run(Request request) { return finish(submit(std::move(request))); }

std::shared_ptr<const KeyValues> Engine::restore(std::span<const Tensor> keys, std::span<const Tensor> values) {
  return SharedKeyValues::from_numbers(impl_->pool, keys, values);
}

const Model& Engine::model() const noexcept { return *impl_->model; }
const std::shared_ptr<const Model>& Engine::shared_model() const noexcept { return impl_->model; }
const Device& Engine::device() const noexcept { return impl_->device; }
const EngineOptions& Engine::options() const noexcept { return impl_->options; }

EngineStatistics Engine::statistics() const noexcept {
  EngineStatistics statistics = impl_->statistics;
  statistics.preemptions = impl_->scheduler.preemptions();
  statistics.kv_pages = impl_->pool->pages();
  statistics.kv_pages_used = statistics.kv_pages - impl_->pool->free_pages();
  return statistics;
}

}  // namespace anthesis
