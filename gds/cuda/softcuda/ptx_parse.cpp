// The parser of PTX: the part of the language that NVRTC makes of our kernels. What it does not know is an error.
#include "ptx.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace ptx {
namespace {

struct Error { std::string text; };

std::string trimmed(const std::string &s) {
	size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
	return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

// split splits at commas outside of braces and brackets.
std::vector<std::string> split(const std::string &s) {
	std::vector<std::string> parts;
	std::string part;
	int depth = 0;
	for (char c : s) {
		depth += (c == '{' || c == '[') - (c == '}' || c == ']');
		if (c == ',' && depth == 0) parts.push_back(trimmed(part)), part.clear();
		else part += c;
	}
	if (!trimmed(part).empty()) parts.push_back(trimmed(part));
	return parts;
}

struct Type { size_t bytes; bool is_signed; };
Type type_of(const std::string &opcode) { // of its last part
	std::string t = opcode.substr(opcode.rfind('.') + 1);
	size_t digits = t.find_first_of("0123456789");
	if (digits == std::string::npos) throw Error{"no type in " + opcode};
	return {size_t(atoi(t.c_str() + digits)) / 8, t[0] == 's'};
}

struct Parser {
	Module &module;
	std::map<std::string, uint64_t> symbols; // addresses of variables of the module
	std::vector<std::string> shared;         // variables of which each block of any kernel has its own
	std::shared_ptr<std::vector<std::string>> shared_lines = std::make_shared<std::vector<std::string>>();
	std::vector<std::string> &lines = *shared_lines;
	size_t at = 0; // the line

	// Of the kernel that is read:
	Kernel *k = nullptr;
	std::unordered_map<std::string, uint16_t> registers;
	std::unordered_map<uint64_t, uint16_t> constants;
	std::unordered_map<std::string, uint64_t> variables; // in shared memory
	std::map<std::string, uint32_t> labels;
	std::vector<std::pair<size_t, std::string>> branches;

	uint16_t make() {
		if (k->registers > UINT16_MAX) throw Error{"too many registers"};
		return uint16_t(k->registers++);
	}
	uint16_t constant(uint64_t v) {
		auto [i, made] = constants.try_emplace(v, 0);
		if (made) k->constants.emplace_back(i->second = make(), v);
		return i->second;
	}
	uint16_t operand(const std::string &s) {
		if (s.rfind("%tid.", 0) == 0 || s.rfind("%ntid.", 0) == 0 || s.rfind("%ctaid.", 0) == 0 || s.rfind("%nctaid.", 0) == 0 || s == "%laneid") {
			auto [i, made] = k->specials.try_emplace(s, 0);
			if (made) i->second = make();
			return i->second;
		}
		if (s[0] == '%') {
			auto [i, made] = registers.try_emplace(s, 0);
			if (made) i->second = make();
			return i->second;
		}
		if (s.rfind("0f", 0) == 0 || s.rfind("0d", 0) == 0) return constant(strtoull(s.c_str() + 2, nullptr, 16));
		if (isdigit(s[0]) || s[0] == '-') return constant(strtoull(s.c_str(), nullptr, 0));
		if (auto i = variables.find(s); i != variables.end()) return constant(i->second);
		if (auto i = symbols.find(s); i != symbols.end()) return constant(i->second);
		throw Error{"unknown operand " + s};
	}
	// list are the registers of {a, b}, a|b or a.
	std::vector<uint16_t> list(std::string s) {
		std::vector<uint16_t> all;
		if (s[0] == '{') {
			for (auto &part : split(s.substr(1, s.size() - 2))) all.push_back(operand(part));
			return all;
		}
		if (size_t bar = s.find('|'); bar != std::string::npos) return {operand(s.substr(0, bar)), operand(s.substr(bar + 1))};
		return {operand(s)};
	}
	// place reads [base + offset].
	void place(Instruction &i, std::string s) {
		if (s[0] != '[') throw Error{"no address: " + s};
		s = s.substr(1, s.size() - 2);
		if (size_t plus = s.find('+'); plus != std::string::npos) {
			i.offset = strtoll(s.c_str() + plus + 1, nullptr, 0);
			s = s.substr(0, plus);
		}
		i.from[i.froms++] = operand(s);
	}
	void add(uint16_t *to, uint8_t &count, size_t most, const std::string &s) {
		for (uint16_t r : list(s)) {
			if (count == most) throw Error{"too many operands"};
			to[count++] = r;
		}
	}

	void statement(std::string s) {
		Instruction i;
		i.line = int(at);
		if (s[0] == '@') {
			size_t space = s.find_first_of(" \t");
			i.unless = s[1] == '!';
			i.guard = operand(s.substr(1 + i.unless, space - 1 - i.unless));
			s = trimmed(s.substr(space));
		}
		size_t space = s.find_first_of(" \t");
		std::string opcode = s.substr(0, space);
		auto operands = split(space == std::string::npos ? "" : s.substr(space));
		auto starts = [&](const char *with) { return opcode.rfind(with, 0) == 0; };
		if (opcode == "bra" || opcode == "bra.uni") {
			i.flow = Flow::branch;
			branches.emplace_back(k->code.size(), operands.at(0));
		} else if (opcode == "ret" || opcode == "exit") {
			i.flow = Flow::end;
		} else if (opcode == "bar.sync") {
			i.flow = Flow::block;
		} else if (starts("membar.")) {
			return; // all accesses are in order here
		} else if (starts("ld.param.")) {
			std::string name = operands.at(1).substr(1, operands.at(1).size() - 2);
			i.run = find("mov");
			add(i.to, i.tos, 4, operands.at(0));
			i.from[i.froms++] = operand("%" + name); // a register of that name: see kernel
		} else if (starts("ld.") || starts("st.") || starts("atom.")) {
			Type t = type_of(opcode);
			i.bytes = uint8_t(t.bytes);
			i.is_signed = t.is_signed;
			i.space = opcode.find(".shared") != std::string::npos ? Space::shared : opcode.find(".global") != std::string::npos ? Space::global : Space::any;
			k->granule = std::min(k->granule, t.bytes);
			if (starts("st.")) {
				place(i, operands.at(0));
				add(i.from, i.froms, 6, operands.at(1));
				i.count = uint8_t(i.froms - 1);
				i.run = stores();
			} else {
				add(i.to, i.tos, 4, operands.at(0));
				place(i, operands.at(1));
				if (starts("ld.")) {
					i.count = i.tos;
					i.run = loads();
				} else {
					for (size_t n = 2; n < operands.size(); n++) add(i.from, i.froms, 6, operands[n]);
					i.run = find("atom" + opcode.substr(opcode.find('.', 5))); // without the space
				}
			}
		} else {
			if (opcode == "bar.warp.sync" || starts("shfl.sync.") || starts("vote.sync.")) i.flow = Flow::warp;
			size_t n = 0;
			if (opcode != "bar.warp.sync") add(i.to, i.tos, 4, operands.at(n++));
			for (; n < operands.size(); n++) add(i.from, i.froms, 6, operands[n]);
			i.run = find(starts("mov.") && (i.tos > 1 || i.froms > 1) ? "mov.parts" : opcode);
		}
		if (!i.run && i.flow != Flow::branch && i.flow != Flow::end && i.flow != Flow::block) throw Error{"unknown instruction " + opcode};
		k->code.push_back(i);
	}

	// variable reads .global or .shared .align N .type name[count] = {values}.
	void variable(const std::string &s, bool shared) {
		size_t equals = s.find('='), bracket = s.find('[');
		std::string head = trimmed(s.substr(0, std::min(equals, bracket)));
		size_t space = head.find_last_of(" \t");
		std::string name = head.substr(space + 1), type = trimmed(head.substr(0, space));
		size_t element = type_of(type).bytes, count = bracket < equals ? strtoull(s.c_str() + bracket + 1, nullptr, 0) : 1, bytes = element * count;
		if (shared) {
			// Apart, so that what is after the end of one is not the start of the next.
			uint64_t start = shared_window + (k->shared_bytes + 31) / 16 * 16;
			k->shared.push_back({start, bytes});
			k->shared_bytes = start - shared_window + bytes;
			variables[name] = start;
			return;
		}
		auto data = std::make_unique<std::vector<uint8_t>>(std::max<size_t>(bytes, 16));
		if (equals != std::string::npos) {
			std::string values = trimmed(s.substr(equals + 1));
			if (values[0] == '{') values = values.substr(1, values.size() - 2);
			size_t n = 0;
			for (auto &v : split(values)) {
				uint64_t bits = strtoull(v.c_str(), nullptr, 0);
				if ((n + 1) * element > bytes) throw Error{"more values than " + name + " has room for"};
				memcpy(data->data() + n++ * element, &bits, element);
			}
		}
		symbols[name] = uintptr_t(data->data());
		module.globals.push_back(std::move(data));
	}

	// next reads up to one of the characters, without comments, and goes behind it.
	std::string text; // what is left of the line
	bool next(std::string &s, const char *ends, char &end) {
		s.clear();
		for (;; at++, text = at < lines.size() ? lines[at] : "") {
			if (at >= lines.size()) return false;
			text = text.substr(0, text.find("//"));
			size_t i = text.find_first_of(ends);
			if (i == std::string::npos) { s += text + "\n"; continue; }
			s = trimmed(s + text.substr(0, i));
			end = text[i];
			text = text.substr(i + 1);
			return true;
		}
	}

	void kernel(const std::string &head) {
		size_t paren = head.find('(');
		std::string name = trimmed(head.substr(0, paren));
		name = name.substr(name.find_last_of(" \t") + 1);
		auto made = std::make_unique<Kernel>();
		k = made.get();
		k->name = name;
		registers.clear(), constants.clear(), variables.clear(), labels.clear(), branches.clear();
		for (auto &declared : shared) variable(declared, true);
		for (auto &p : split(head.substr(paren + 1, head.rfind(')') - paren - 1))) {
			size_t space = p.find_last_of(" \t");
			k->parameter_bytes.push_back(type_of(trimmed(p.substr(0, space))).bytes);
			k->parameters.push_back(operand("%" + p.substr(space + 1)));
		}
		std::string s;
		char end;
		for (int depth = 1; depth > 0;) {
			// Braces are blocks at the start of a statement, and lists within one; so are the marks of labels.
			if (!next(s, ";:{}", end)) throw Error{"the kernel " + name + " does not end"};
			while (end == '{' && !s.empty()) { // a list
				std::string more;
				if (!next(more, "}", end)) throw Error{"a list does not end"};
				s += " {" + more + "}";
				if (!next(more, ";{", end)) throw Error{"a statement does not end"};
				s += more;
			}
			if (end == ':') labels[s] = uint32_t(k->code.size());
			else if (end == '{') depth++;
			else if (end == '}') depth--;
			else if (s.rfind(".shared", 0) == 0) variable(s, true);
			else if (s.empty() || s.rfind(".reg", 0) == 0 || s.rfind(".pragma", 0) == 0) continue;
			else if (s[0] == '.') throw Error{"unknown directive " + s};
			else statement(s);
		}
		for (auto &[i, label] : branches) {
			auto to = labels.find(label);
			if (to == labels.end()) throw Error{"no label " + label};
			k->code[i].target = to->second;
		}
		k->lines = shared_lines;
		module.kernels[name] = std::move(made);
	}

	void all() {
		text = lines.empty() ? "" : lines[0];
		std::string s;
		char end;
		while (next(s, ";{", end)) {
			for (const char *line : {".version", ".target", ".address_size"}) // which end without a mark
				if (size_t i = s.find(line); i != std::string::npos) {
					size_t e = s.find('\n', i);
					s = trimmed(s.substr(0, i) + (e == std::string::npos ? "" : s.substr(e)));
				}
			if (end == '{' && s.find('=') != std::string::npos) { // values of a variable
				std::string more;
				if (!next(more, ";", end)) throw Error{"a variable does not end"};
				variable(s + "{" + more, false);
			} else if (end == ';') {
				if (s.rfind(".shared", 0) == 0) { shared.push_back(s); continue; }
				if (s.rfind(".global", 0) != 0) throw Error{"unknown directive " + s};
				variable(s, false);
			} else {
				kernel(s);
			}
		}
	}
};
} // namespace

std::unique_ptr<Module> parse(const char *text, std::string &wrong) {
	auto m = std::make_unique<Module>();
	Parser p{*m};
	std::string line;
	for (const char *c = text; *c; c++) {
		if (*c != '\n') line += *c;
		else p.lines.push_back(line), line.clear();
	}
	p.lines.push_back(line);
	try {
		p.all();
	} catch (const Error &e) {
		wrong = "line " + std::to_string(p.at + 1) + ": " + e.text;
		return nullptr;
	}
	return m;
}
} // namespace ptx
