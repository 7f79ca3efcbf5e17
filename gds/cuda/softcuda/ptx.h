// Runs kernels from their PTX, on the processor: the bytes that the driver of a GPU gets, instruction by instruction.
// Blocks, warps and, where they have diverged, lanes run in a random order, and what a GPU would leave undefined is a
// fault: reads and writes outside of allocated memory or unaligned, reads of what nobody wrote, races, barriers that
// some threads do not reach, and lanes that are missing where a warp meets.
//
// A race is two accesses to one place by different threads of a launch of which one writes, unless both are atomic, the
// same value is written again, or a barrier of the block, or of all lanes of a warp, lies between them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ptx {

struct Dim { unsigned x, y; };

// Memory is memory that kernels may access; written has, for each byte, whether it was written (null: all were).
struct Memory { uintptr_t start; size_t bytes; uint8_t *written; };

struct Warp;
struct Instruction;
typedef void (*Handler)(Warp &, const Instruction &, uint32_t lanes);
enum class Flow : uint8_t { next, branch, end, warp, block };
enum class Space : uint8_t { any, global, shared };

struct Instruction {
	Handler run = nullptr;
	Flow flow = Flow::next;
	uint16_t to[4] = {}, from[6] = {}; // registers
	uint8_t tos = 0, froms = 0;
	int guard = -1; // a register: only lanes where it is set, or, with unless, is not
	bool unless = false;
	uint32_t target = 0; // of a branch
	// Of an access to memory at from[0] + offset:
	Space space = Space::any;
	int64_t offset = 0;
	uint8_t bytes = 0, count = 1; // of an element, and how many elements
	bool is_signed = false;
	int line = 0;
};

struct Variable { uint64_t start; size_t bytes; };

struct Kernel {
	std::string name;
	std::vector<Instruction> code;
	std::shared_ptr<const std::vector<std::string>> lines; // of the module's text
	size_t registers = 0;
	std::vector<std::pair<uint16_t, uint64_t>> constants; // registers, and what is in them
	std::vector<uint16_t> parameters;                      // registers
	std::vector<size_t> parameter_bytes;
	std::unordered_map<std::string, uint16_t> specials; // "%tid.x": registers
	std::vector<Variable> shared;
	size_t shared_bytes = 0, granule = 4; // bytes of memory that one record of accesses is for
};

struct Module {
	std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels;
	std::vector<std::unique_ptr<std::vector<uint8_t>>> globals;
};

// parse reads a module, or says what is wrong with it.
std::unique_ptr<Module> parse(const char *text, std::string &wrong);

// find is what runs an opcode with its types, as "add.s64", or null.
Handler find(const std::string &opcode);
Handler loads(), stores();

constexpr uint64_t shared_window = uint64_t(1) << 56; // addresses of shared memory: none of other memory

// run runs a kernel and returns "", or the fault that it has. memory is sorted by start; arguments are of 8 bytes each.
std::string run(const Kernel &k, Dim grid, Dim block, const std::vector<uint64_t> &arguments, const std::vector<Memory> &memory, uint64_t seed);

} // namespace ptx
