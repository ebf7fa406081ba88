// A reader of Oniguruma's Ruby syntax that keeps what it needs to recognise BLOOM's expression and otherwise only checks.
#include "tokenizer/expression.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tokenizer/character_set.h"
#include "tokenizer/utf8.h"

namespace anthesis {
namespace {

constexpr int kMostNested = 100;
constexpr long kMostRepeats = 100000;  // Oniguruma's own limit

struct Invalid {
  std::string reason;
};
struct TooDeep {};

// One repeated item of an expression.
struct Term {
  std::optional<CharacterSet> set;  // what it matches, where that is one character of a set that is known
  bool anchor = false;              // matches a place, so that it cannot be repeated
  bool repeatable = true;
  long least = 1;
  long most = 1;      // -1: no end
  bool plain = true;  // repeated at most once, and greedily
};
using Terms = std::vector<Term>;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Terms read() {
    Terms terms = alternatives(false, 0);
    if (at_ < text_.size()) throw Invalid{"a closing parenthesis that nothing opens"};
    check_references();
    return terms;
  }

 private:
  [[nodiscard]] bool done() const { return at_ >= text_.size(); }
  [[nodiscard]] bool next_is(char c) const { return !done() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  char32_t take_any() {
    const CodePoint c = code_point_at(text_, at_);
    at_ += c.length;
    return c.value;
  }
  void expect(char c, const char* otherwise) {
    if (!take(c)) throw Invalid{otherwise};
  }
  std::string_view take_until(char end, const char* otherwise) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) throw Invalid{otherwise};
    const std::string_view part = text_.substr(at_, found - at_);
    at_ = found + 1;
    return part;
  }
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  char32_t take_hex(int most, int* digits = nullptr) {
    char32_t value = 0;
    int count = 0;
    for (; count < most && !done() && hex_digit(text_[at_]) >= 0; ++count) {
      value = value * 16 + static_cast<char32_t>(hex_digit(text_[at_++]));
    }
    if (digits != nullptr) *digits = count;
    return value;
  }

  // Up to the end or a closing parenthesis. The terms of the only alternative; of several, one term that is no set.
  Terms alternatives(bool extended, int depth) {
    if (depth > kMostNested) throw TooDeep{};
    Terms only;
    bool several = false;
    bool anchor = false;
    do {
      Terms terms = sequence(extended, depth);
      anchor = anchor || (terms.size() == 1 && terms[0].anchor);
      if (next_is('|')) several = true;
      only = std::move(terms);
    } while (take('|'));
    if (!several) return only;
    Term choice;
    choice.anchor = anchor;
    choice.plain = false;
    return {choice};
  }

  Terms sequence(bool extended, int depth) {
    Terms terms;
    while (!done() && text_[at_] != '|' && text_[at_] != ')') {
      if (extended && skip_extended()) continue;
      if (repeat(terms)) continue;
      terms.push_back(term(extended, depth));
    }
    return terms;
  }

  bool skip_extended() {
    if (next_is(' ') || next_is('\t') || next_is('\n') || next_is('\r') || next_is('\f') || next_is('\v')) return ++at_ > 0;
    if (!next_is('#')) return false;
    while (!done() && text_[at_] != '\n') ++at_;
    return true;
  }

  // A quantifier, applied to the last term. Braces that hold no range are letters.
  bool repeat(Terms& terms) {
    long least = 0;
    long most = -1;
    bool plain = true;
    const std::size_t begin = at_;
    if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (!take('*')) {
      if (!range(least, most)) {
        at_ = begin;
        return false;
      }
      if (take('?')) plain = false;
    }
    if (text_[begin] != '{' && (take('?') || take('+'))) plain = false;
    if (terms.empty() || !terms.back().repeatable) throw Invalid{"nothing stands before a repetition"};
    Term& target = terms.back();
    if (target.anchor) throw Invalid{"a place in the text cannot be repeated"};
    target.plain = target.plain && plain && target.least == 1 && target.most == 1;
    target.least = least;
    target.most = most;
    return true;
  }

  bool range(long& least, long& most) {
    if (!take('{')) return false;
    const auto number = [&]() -> std::optional<long> {
      if (done() || text_[at_] < '0' || text_[at_] > '9') return std::nullopt;
      long value = 0;
      while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
        value = value * 10 + (text_[at_++] - '0');
        if (value > kMostRepeats) throw Invalid{"too many repetitions"};
      }
      return value;
    };
    const auto from = number();
    if (take(',')) {
      const auto to = number();
      if (!from && !to) return false;
      least = from.value_or(0);
      most = to.value_or(-1);
    } else {
      if (!from) return false;
      least = most = *from;
    }
    return take('}');
  }

  Term term(bool& extended, int depth) {
    Term result;
    const char32_t c = take_any();
    if (c == '(') return group(extended, depth);
    if (c == '[') {
      result.set = character_class(depth);
    } else if (c == '\\') {
      escape(result);
    } else if (c == '^' || c == '$') {
      result.anchor = true;
    } else if (c != '.') {
      result.set = CharacterSet({{c, c}});
    }
    return result;
  }

  Term group(bool& extended, int depth) {
    Term result;
    result.plain = false;
    if (next_is('*')) {  // a callout
      take_until(')', "the pattern ends within a group");
      return result;
    }
    bool inner_extended = extended;
    bool transparent = false;  // what cannot be repeated inside cannot be repeated outside
    if (!take('?')) {
      ++groups_;
    } else if (done()) {
      throw Invalid{"the pattern ends within a group"};
    } else if (take('#')) {
      take_until(')', "the pattern ends within a comment");
      result.repeatable = false;
      return result;
    } else if (take('=') || take('!')) {
      result.anchor = true;
    } else if (take(':')) {
      transparent = true;
    } else if (take('>') || take('~')) {
    } else if (take('<')) {
      if (take('=') || take('!')) {
        result.anchor = true;
      } else {
        name_group('>');
      }
    } else if (take('\'')) {
      name_group('\'');
    } else if (take('(')) {
      take_until(')', "the pattern ends within a condition");
    } else if (take('{')) {
      take_until('}', "the pattern ends within a callout");
      take_until(')', "the pattern ends within a group");
      return result;
    } else {
      options(inner_extended);
      if (take(')')) {
        extended = inner_extended;
        result.repeatable = false;
        return result;
      }
      expect(':', "an unknown group option");
      transparent = true;
    }
    const Terms inner = alternatives(inner_extended, depth + 1);
    expect(')', "a parenthesis that nothing closes");
    if (transparent) result.anchor = inner.size() == 1 && inner[0].anchor;
    return result;
  }

  void name_group(char end) {
    const std::string_view name = take_until(end, "the pattern ends within a group name");
    const bool digit = !name.empty() && name[0] >= '0' && name[0] <= '9';
    if (name.empty() || digit || name.find(')') != std::string_view::npos) throw Invalid{"a group name that is none"};
    names_.insert(name);
  }

  void options(bool& extended) {
    bool on = true;
    while (!done() && text_[at_] != ')' && text_[at_] != ':') {
      const char option = text_[at_++];
      if (option == '-') {
        on = false;
      } else if (option == 'x') {
        extended = on;
      } else if (option == 'y') {
        expect('{', "an unknown group option");
        if (!take('g') && !take('w')) throw Invalid{"an unknown group option"};
        expect('}', "an unknown group option");
      } else if (std::string_view("imWDSPILC").find(option) == std::string_view::npos) {
        throw Invalid{"an unknown group option"};
      }
    }
    if (done()) throw Invalid{"the pattern ends within a group"};
    if (text_[at_ - 1] == '?') throw Invalid{"an unknown group option"};
  }

  void escape(Term& term) {
    if (done()) throw Invalid{"the pattern ends in a backslash"};
    const char c = text_[at_];
    if (std::string_view("AZzGbBKyY").find(c) != std::string_view::npos) {
      ++at_;
      term.anchor = true;
    } else if ((c == 'k' || c == 'g') && at_ + 1 < text_.size() && (text_[at_ + 1] == '<' || text_[at_ + 1] == '\'')) {
      const char end = text_[at_ + 1] == '<' ? '>' : '\'';
      at_ += 2;
      const std::string_view name = take_until(end, "the pattern ends within a group name");
      if (name.empty()) throw Invalid{"a group name is empty"};
      if (std::string_view("0123456789+-").find(name[0]) == std::string_view::npos) wanted_names_.push_back(name);
    } else if (c >= '1' && c <= '9') {
      long number = 0;
      const std::size_t begin = at_;
      while (!done() && text_[at_] >= '0' && text_[at_] <= '9' && number < 1000) number = number * 10 + (text_[at_++] - '0');
      if (number <= 9) {
        highest_reference_ = std::max(highest_reference_, number);
      } else if (number > groups_) {  // octal
        at_ = begin + 1;
        while (at_ < begin + 3 && !done() && text_[at_] >= '0' && text_[at_] <= '7') ++at_;
      }
    } else {
      bool is_class = false;
      const std::optional<char32_t> value = character_escape(is_class);
      if (value) {
        term.set = CharacterSet({{*value, *value}});
      } else if (c == 's') {
        term.set = white_space_set();
      }
    }
  }

  // An escape that stands for a character: which, where that is known. `is_class`: it stands for many.
  std::optional<char32_t> character_escape(bool& is_class) {
    if (done()) throw Invalid{"the pattern ends in a backslash"};
    const char32_t c = take_any();
    switch (c) {
      case 'n':
        return U'\n';
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case 'f':
        return U'\f';
      case 'v':
        return U'\v';
      case 'a':
        return U'\a';
      case 'e':
        return U'\x1B';
      case 'x':
        return hex_escape();
      case 'u': {
        int digits = 0;
        const char32_t value = take_hex(4, &digits);
        if (digits == 0) return U'u';
        if (digits < 4) throw Invalid{"a code point of fewer than four digits"};
        return value;
      }
      case 'C':
        expect('-', "the pattern ends within a control character");
        return control();
      case 'c':
        return control();
      case 'M':
        expect('-', "the pattern ends within a meta character");
        return control();
      case 'p':
      case 'P':
        if (take('{')) take_until('}', "a property that nothing closes");
        is_class = true;
        return std::nullopt;
      case 's':
      case 'S':
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 'h':
      case 'H':
        is_class = true;
        return std::nullopt;
      case 'R':
      case 'X':
      case 'N':
      case 'O':
      case 'o':
        return std::nullopt;
      default:
        break;
    }
    if (c >= '0' && c <= '9') {
      for (int k = 0; k < 2 && !done() && text_[at_] >= '0' && text_[at_] <= '7'; ++k) ++at_;
      return std::nullopt;
    }
    return c;
  }

  std::optional<char32_t> hex_escape() {
    int digits = 0;
    if (next_is('{') && at_ + 1 < text_.size() && hex_digit(text_[at_ + 1]) >= 0) {
      ++at_;
      const char32_t value = take_hex(9, &digits);
      if (digits > 8) throw Invalid{"a code point of too many digits"};
      if (next_is(' ')) {
        take_until('}', "a code point that nothing closes");
        return std::nullopt;
      }
      expect('}', "a code point that nothing closes");
      return value;
    }
    const char32_t value = take_hex(2, &digits);
    if (value >= 0x80) return std::nullopt;  // a byte of a longer character
    return value;
  }

  std::optional<char32_t> control() {
    if (done()) throw Invalid{"the pattern ends within a control character"};
    if (take('\\')) {
      bool is_class = false;
      character_escape(is_class);
    } else {
      take_any();
    }
    return std::nullopt;
  }

  // Behind the opening bracket. The set, where it is known.
  std::optional<CharacterSet> character_class(int depth) {
    if (depth > kMostNested) throw TooDeep{};
    const bool negated = take('^');
    if (next_is(']') && text_.find(']', at_ + 1) == std::string_view::npos) throw Invalid{"an empty character class"};
    std::vector<CharacterRange> ranges;
    bool known = true;
    bool first = true;
    enum class Before { nothing, value, range_or_class, no_value } before = Before::nothing;
    std::optional<char32_t> value;
    while (true) {
      if (done()) throw Invalid{"a character class that nothing closes"};
      if (!first && take(']')) break;
      first = false;
      if (text_.substr(at_).starts_with("&&")) {
        at_ += 2;
        known = false;
        before = Before::nothing;
      } else if (next_is('-') && !text_.substr(at_ + 1).starts_with("]") && before == Before::value &&
                 !text_.substr(at_ + 1).starts_with("[")) {
        ++at_;
        if (done()) throw Invalid{"a character class that nothing closes"};
        bool is_class = false;
        std::optional<char32_t> last;
        if (take('\\')) {
          last = character_escape(is_class);
        } else {
          last = take_any();
        }
        if (is_class) throw Invalid{"a range that ends in a class"};
        if (value && last && *last < *value) throw Invalid{"a range that ends before it begins"};
        if (value && last) {
          ranges.push_back({*value, *last});
        } else {
          known = false;
        }
        before = Before::range_or_class;
      } else if (next_is('-') && before == Before::value && text_.substr(at_ + 1).starts_with("[:") && posix_at(at_ + 2)) {
        throw Invalid{"a range that ends in a class"};
      } else if (next_is('-') && before == Before::no_value && !text_.substr(at_ + 1).starts_with("]")) {
        throw Invalid{"a range that begins with a class"};
      } else if (take('[')) {
        if (next_is(':') && posix_at(at_ + 1)) {
          at_ = text_.find(":]", at_) + 2;
          known = false;
          before = Before::no_value;
        } else {
          const auto inner = character_class(depth + 1);
          if (inner) ranges.insert(ranges.end(), inner->ranges().begin(), inner->ranges().end());
          known = known && inner;
          before = Before::range_or_class;
        }
      } else if (take('\\')) {
        const bool white = next_is('s');
        bool is_class = false;
        value = character_escape(is_class);
        if (white) {
          ranges.insert(ranges.end(), kWhiteSpace.begin(), kWhiteSpace.end());
        } else if (value) {
          ranges.push_back({*value, *value});
        } else {
          known = false;
        }
        before = is_class ? Before::no_value : Before::value;
      } else {
        value = take_any();
        ranges.push_back({*value, *value});
        before = Before::value;
      }
    }
    if (!known) return std::nullopt;
    CharacterSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  // A bracket such as [:alpha:] begins here, behind its colon.
  [[nodiscard]] bool posix_at(std::size_t at) const {
    constexpr std::array<std::string_view, 14> kNames{"alnum", "alpha", "blank", "cntrl", "digit",  "graph", "lower",
                                                      "print", "punct", "space", "upper", "xdigit", "ascii", "word"};
    std::string_view rest = text_.substr(at);
    if (rest.starts_with("^")) rest.remove_prefix(1);
    const std::size_t end = rest.find(":]");
    if (end == std::string_view::npos || rest.size() < 6 || rest.substr(0, end).find(']') != std::string_view::npos)
      return false;
    if (std::find(kNames.begin(), kNames.end(), rest.substr(0, end)) == kNames.end()) {
      throw Invalid{"an unknown class name between [: and :]"};
    }
    return true;
  }

  void check_references() const {
    for (std::string_view name : wanted_names_) {
      if (!names_.contains(name)) throw Invalid{"a reference to a group that does not exist"};
    }
    if (highest_reference_ > groups_) throw Invalid{"a reference to a group that does not exist"};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  long groups_ = 0;
  long highest_reference_ = 0;
  std::set<std::string_view> names_;
  std::vector<std::string_view> wanted_names_;
};

}  // namespace

ExpressionCheck check_expression(std::string_view expression) {
  using Kind = ExpressionCheck::Kind;
  try {
    const Terms terms = Reader(expression).read();
    if (terms.size() != 2) return {Kind::unsupported, {}};
    const Term& space = terms[0];
    const Term& letters = terms[1];
    const bool bloom = space.plain && space.least == 0 && space.most == 1 && space.set == CharacterSet({{U' ', U' '}}) &&  //
                       letters.plain && letters.least == 1 && letters.most == -1 && letters.set == word_set();
    return {bloom ? Kind::bloom : Kind::unsupported, {}};
  } catch (const Invalid& invalid) {
    return {Kind::invalid, invalid.reason};
  } catch (const TooDeep&) {
    return {Kind::unsupported, {}};
  }
}

}  // namespace anthesis
