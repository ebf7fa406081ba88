// Thompson's construction: the pattern becomes a little program, of which all threads run at once, one character at a time.
#include "adapters/pattern.h"

#include <cctype>
#include <string>

#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

// Parses and emits in one go. A piece of program is relocatable: its jumps are relative until it is done.
class PatternParser {
 public:
  PatternParser(std::string_view text, std::string_view who, std::string_view field, Pattern& into)
      : text_(text), who_(who), field_(field), into_(into) {}

  void parse() {
    if (text_.size() > kLongest) refuse("is too long");
    Code code = alternatives(0);
    if (at_ < text_.size()) refuse("has an unmatched )");
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (code[i].op == Pattern::Op::split || code[i].op == Pattern::Op::jump) {
        code[i].first += static_cast<std::int32_t>(i);
        code[i].second += static_cast<std::int32_t>(i);
      }
    }
    code.push_back({});
    into_.program_ = std::move(code);
  }

 private:
  using Op = Pattern::Op;
  using Code = std::vector<Pattern::Instruction>;
  using Set = Pattern::Set;
  static constexpr std::size_t kLongest = 4096, kMostInstructions = 20'000, kDeepest = 50;

  [[noreturn]] void refuse(std::string_view what) const {
    fail<LoadError>(who_,
                    "{} holds the pattern \"{}\", which {}; expected a regular expression of literals, classes, groups, | and "
                    "repetitions",
                    field_, shown(text_), what);
  }
  [[nodiscard]] bool more() const { return at_ < text_.size(); }
  [[nodiscard]] char peek() const { return more() ? text_[at_] : '\0'; }
  bool accept(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  static std::int32_t length(const Code& code) { return static_cast<std::int32_t>(code.size()); }
  void append(Code& to, const Code& what) const {
    to.insert(to.end(), what.begin(), what.end());
    if (to.size() > kMostInstructions) refuse("repeats too much");
  }

  Code alternatives(std::size_t depth) {
    if (depth > kDeepest) refuse("is nested too deeply");
    Code code = sequence(depth);
    while (accept("|")) {
      const Code other = sequence(depth);
      Code both{{Op::split, 1, length(code) + 2}};
      append(both, code);
      both.push_back({Op::jump, length(other) + 1, 0});
      append(both, other);
      code = std::move(both);
    }
    return code;
  }

  Code sequence(std::size_t depth) {
    Code code;
    while (more() && peek() != '|' && peek() != ')') {
      const bool assertion = peek() == '^' || peek() == '$';
      Code piece = atom(depth);
      const std::size_t before = at_;
      piece = repeated(std::move(piece));
      if (assertion && at_ != before) refuse("repeats ^ or $");
      append(code, piece);
    }
    return code;
  }

  Code repeated(Code piece) {
    std::int64_t least = 1, most = 1;
    constexpr std::int64_t kNoEnd = -1;
    if (accept("*")) {
      least = 0, most = kNoEnd;
    } else if (accept("+")) {
      most = kNoEnd;
    } else if (accept("?")) {
      least = 0;
    } else if (!counted(least, most)) {
      return piece;
    }
    accept("?");  // lazy or not: whether it matches is the same
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("repeats a repetition");
    Code code;
    for (std::int64_t i = 0; i < least; ++i) append(code, piece);
    if (most == kNoEnd) {
      code.push_back({Op::split, 1, length(piece) + 2});
      append(code, piece);
      code.push_back({Op::jump, -length(piece) - 1, 0});
    }
    for (std::int64_t i = least; i < most; ++i) {
      code.push_back({Op::split, 1, length(piece) + 1});
      append(code, piece);
    }
    return code;
  }

  // {m}, {m,}, {,n} or {m,n}; anything else behind a brace is a literal brace, as in Python.
  bool counted(std::int64_t& least, std::int64_t& most) {
    if (peek() != '{') return false;
    const std::size_t begin = at_++;
    const auto number = [&](std::int64_t absent) {
      std::int64_t value = 0;
      const std::size_t first = at_;
      for (; std::isdigit(static_cast<unsigned char>(peek())) != 0 && at_ - first < 6; ++at_)
        value = value * 10 + (peek() - '0');
      return at_ == first ? absent : value;
    };
    std::int64_t low = number(-1), high = low;
    const bool comma = accept(",");
    if (comma) high = number(-1);
    if (!accept("}") || (low < 0 && !comma)) {
      at_ = begin;
      return false;
    }
    low = low < 0 ? 0 : low;
    if (high >= 0 && high < low) refuse("has a repetition whose end is before its beginning");
    if (low > 1000 || high > 1000) refuse("repeats too much");
    least = low, most = high;
    return true;
  }

  Code atom(std::size_t depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return set(bracket());
      case '.':
        return set(Set().set().reset('\n'));
      case '^':
        return {{Op::at_begin, 0, 0}};
      case '$':
        return {{Op::at_end, 0, 0}};
      case '*':
      case '+':
      case '?':
        refuse("has nothing to repeat");
      case '\\':
        return escape();
      default:
        return set(one(c));
    }
  }

  Code group(std::size_t depth) {
    if (accept("?")) {
      if (accept("P<")) {
        const std::size_t close = text_.find('>', at_);
        if (close == std::string_view::npos || close == at_) refuse("has a group whose name does not end");
        at_ = close + 1;
      } else if (!accept(":")) {
        refuse("uses lookaround, flags or another extension (?...)");
      }
    }
    Code code = alternatives(depth + 1);
    if (!accept(")")) refuse("has a group that does not end");
    return code;
  }

  Code escape() {
    if (!more()) refuse("ends in a backslash");
    const char c = text_[at_];
    switch (c) {
      case 'A':
        return ++at_, Code{{Op::at_begin, 0, 0}};
      case 'Z':
        return ++at_, Code{{Op::at_end, 0, 0}};
      case 'b':
        return ++at_, Code{{Op::at_word_border, 0, 0}};
      case 'B':
        return ++at_, Code{{Op::not_at_word_border, 0, 0}};
      default:
        return set(escaped_set());
    }
  }

  // \d and its kind, or one character.
  Set escaped_set() {
    if (!more()) refuse("ends in a backslash");
    const char c = text_[at_++];
    const auto where = [](auto predicate) {
      Set found;
      for (int i = 0; i < 128; ++i) found.set(static_cast<std::size_t>(i), predicate(i));
      return found;
    };
    const Set digits = where([](int i) { return i >= '0' && i <= '9'; });
    const Set words = where([](int i) { return std::isalnum(i) != 0 || i == '_'; });
    const Set spaces = where([](int i) { return i == ' ' || (i >= '\t' && i <= '\r'); });
    switch (c) {
      case 'd':
        return digits;
      case 'D':
        return ~digits;
      case 'w':
        return words;
      case 'W':
        return ~words;
      case 's':
        return spaces;
      case 'S':
        return ~spaces;
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse("uses a backreference or an escape that is not supported");
        return one(c);
    }
  }

  Set bracket() {
    const bool negated = accept("^");
    Set found;
    bool first = true;
    while (true) {
      if (!more()) refuse("has a class [ that does not end");
      if (peek() == ']' && !first) break;
      first = false;
      const auto [low, low_set] = member();
      if (low >= 0 && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const auto [high, high_set] = member();
        if (high < low) refuse("has a range that runs backwards");
        for (int i = low; i <= high; ++i) found.set(static_cast<std::size_t>(i));
      } else {
        found |= low_set;
      }
    }
    ++at_;
    return negated ? ~found : found;
  }

  // One member of a class: its character, or -1 where it is a class itself, and the set of it.
  std::pair<int, Set> member() {
    if (!more()) refuse("has a class [ that does not end");
    Set found;
    if (accept("\\")) {
      found = accept("b") ? one('\b') : escaped_set();
    } else {
      found = one(text_[at_++]);
    }
    if (found.count() != 1) return {-1, found};
    int character = 0;
    while (!found.test(static_cast<std::size_t>(character))) ++character;
    return {character, found};
  }

  static Set one(char c) { return Set().set(static_cast<unsigned char>(c)); }
  Code set(const Set& found) {
    into_.sets_.push_back(found);
    return {{Op::set, static_cast<std::int32_t>(into_.sets_.size()) - 1, 0}};
  }

  std::string_view text_, who_, field_;
  Pattern& into_;
  std::size_t at_ = 0;
};

Pattern::Pattern(std::string_view text, std::string_view who, std::string_view field) {
  PatternParser(text, who, field, *this).parse();
}

bool Pattern::run(std::string_view text, bool all) const {
  const auto is_word = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  std::vector<std::int32_t> now, next, open;
  std::vector<std::size_t> seen(program_.size(), 0);  // the position, plus 1, at which an instruction was last reached
  bool matched = false;
  // Follows everything that takes no character.
  const auto reach = [&](std::int32_t start, std::size_t position, std::vector<std::int32_t>& into) {
    open.assign(1, start);
    while (!open.empty()) {
      const std::int32_t at = open.back();
      open.pop_back();
      if (seen[static_cast<std::size_t>(at)] == position + 1) continue;
      seen[static_cast<std::size_t>(at)] = position + 1;
      const Instruction& instruction = program_[static_cast<std::size_t>(at)];
      const bool border = (position > 0 && is_word(position - 1)) != is_word(position);
      bool passes = false;
      switch (instruction.op) {
        case Op::set:
          into.push_back(at);
          break;
        case Op::split:
          open.push_back(instruction.second);
          open.push_back(instruction.first);
          break;
        case Op::jump:
          open.push_back(instruction.first);
          break;
        case Op::match:
          matched = matched || !all || position == text.size();
          break;
        case Op::at_begin:
          passes = position == 0;
          break;
        case Op::at_end:
          passes = position == text.size();
          break;
        case Op::at_word_border:
          passes = border;
          break;
        case Op::not_at_word_border:
          passes = !border;
          break;
      }
      if (passes) open.push_back(at + 1);
    }
  };
  reach(0, 0, now);
  for (std::size_t i = 0; i < text.size() && !matched; ++i) {
    next.clear();
    for (const std::int32_t at : now) {
      const Set& set = sets_[static_cast<std::size_t>(program_[static_cast<std::size_t>(at)].first)];
      if (set.test(static_cast<unsigned char>(text[i]))) reach(at + 1, i + 1, next);
    }
    now.swap(next);
  }
  return matched;
}

}  // namespace anthesis
