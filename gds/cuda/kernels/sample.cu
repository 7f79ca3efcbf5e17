// Sampling of the in-edges of nodes, local ids, and gathering through a cache: gds.SampleOps. The graph
// may be pinned host memory, which these kernels then read over the link: so what is read there is read
// once in a kernel, by as many threads as there are numbers.
#include "common.h"
#include "random.h"

// A place in a list, and no place: an edge that the graph has not.
enum : u64 { NO_EDGE = ~0ull };

// A graph, with the lists that are cached in memory of the device, and how it is sampled: the first parameters of a
// kernel. Vectors that the graph lacks are null.
#define GRAPH const u64 *offsets, const u32 *all_sources, const float *all_weights, const u32 *loops, u64 graph_nodes, \
	const u32 *slots, const u64 *cached_offsets, const u32 *cached_sources, const float *cached_weights, u64 cached_lists, \
	i64 fanout, u64 random, u32 flags
#define LIST_OF(node) list_of(offsets, all_sources, all_weights, loops, slots, cached_offsets, cached_sources, cached_weights, cached_lists, node)

// List is the edges of a node, and which of them is its self-loop that is always chosen, or -1.
struct List { const u32 *sources; const float *weights; u64 degree; i64 loop; bool cached; };

DEVICE List list_of(const u64 *offsets, const u32 *sources, const float *weights, const u32 *loops, const u32 *slots,
	const u64 *cached_offsets, const u32 *cached_sources, const float *cached_weights, u64 cached_lists, u32 node) {
	u64 at = node;
	bool cached = slots && slots[node] < cached_lists;
	if (cached) { at = slots[node]; offsets = cached_offsets; sources = cached_sources; weights = cached_weights; }
	u64 first = offsets[at];
	return {sources + first, weights ? weights + first : nullptr, offsets[at + 1] - first, loops ? (i64)loops[node] - 1 : -1, cached};
}

// How many edges there are to choose among, whether all are chosen, and how many random numbers are drawn.
enum { REPLACE = 1, LABOR = 2, ADD_LOOPS = 4, MEAN = 8 };
DEVICE u64 choices(List l) { return l.loop >= 0 ? l.degree - 1 : l.degree; }
DEVICE bool all_chosen(u64 d, i64 fanout, u32 flags) { return fanout < 0 || ((u64)fanout >= d && ((flags & LABOR) || !(flags & REPLACE))); }
DEVICE u64 draws(u64 d, i64 fanout, u32 flags) { return (flags & LABOR) || d == 0 || all_chosen(d, fanout, flags) ? 0 : (u64)fanout; }

// threshold is floor(2^64 k / d), k < d < 2^32: no node has more edges.
DEVICE u64 threshold(u64 k, u64 d) { return (k << 32) / d << 32 | ((k << 32) % d << 32) / d; }

// read_of is how many bytes of a list that is not cached are read by both operations: gds.SampleOps.
DEVICE u64 read_of(List l, u64 chosen, u64 edge_bytes, bool looked) { return l.cached ? 0 : 32 + chosen * edge_bytes + (looked ? 8 * l.degree : 0); }

// block_sum is the sum of a number of each of the 256 threads of a block; all come here together.
DEVICE u64 block_sum(u64 number) {
	__shared__ u64 shared[256];
	__syncthreads(); // as it may be called again
	shared[threadIdx.x] = number;
	__syncthreads();
	for (u32 k = 128; k > 0; k /= 2) {
		if (threadIdx.x < k) shared[threadIdx.x] += shared[threadIdx.x + k];
		__syncthreads();
	}
	return shared[0];
}

// add_total adds the sum of a number of each thread of a block to total; all come here together.
DEVICE void add_total(u64 *total, u64 number) {
	number = block_sum(number);
	if (threadIdx.x == 0 && number) atomicAdd(total, number);
}

// counts[v] is how many edges of nodes[v] are chosen, but for those that LABOR chooses among.
KERNEL(count_sampled, GRAPH, u32 *counts, u64 *read, const u32 *nodes, u64 destinations, Fault *fault, u64 operation) {
	u64 bytes = 0, edge_bytes = all_weights ? 8 : 4;
	FOR_EACH(v, destinations) {
		if (nodes[v] >= graph_nodes) {
			report(fault, operation, NO_SUCH_NODE, v, 0, nodes[v], (i64)graph_nodes);
			counts[v] = 0;
			continue;
		}
		List l = LIST_OF(nodes[v]);
		u64 d = choices(l), chosen = all_chosen(d, fanout, flags) ? d : draws(d, fanout, flags);
		counts[v] = (u32)(chosen + (flags & ADD_LOOPS ? 1 : 0));
		if (!(flags & LABOR) || all_chosen(d, fanout, flags)) bytes += read_of(l, chosen + (l.loop >= 0 ? 1 : 0), edge_bytes, false);
	}
	add_total(read, bytes);
}

// LABOR reads whole lists, unless all of a list is chosen: a warp does, or the block if the list is long. The places in
// the list of the first room that are chosen go to chosen.
enum { LONG_LIST = 1024, TILES = 4, WARPS = 8 };

DEVICE u32 labor(u64 *chosen, u64 room, List l, u64 below, u64 random) {
	u32 count = 0;
	for (u64 j0 = 0; j0 < l.degree; j0 += 32) {
		u64 j = j0 + LANE;
		bool take = j < l.degree && (i64)j != l.loop && hash_at(random, l.sources[j]) < below;
		u32 lanes = __ballot_sync(ALL_LANES, take);
		u64 place = count + __popc(lanes & LANES_BELOW);
		if (take && place < room) chosen[place] = j;
		count += __popc(lanes);
	}
	return count;
}

// labor_block is labor by all threads of a block, which come here together: TILES tiles of an edge a thread at a time.
DEVICE u32 labor_block(u64 *chosen, u64 room, List l, u64 below, u64 random) {
	__shared__ u32 taken[TILES * WARPS];
	u32 count = 0, lanes[TILES], warp = threadIdx.x / 32;
	for (u64 j0 = 0; j0 < l.degree; j0 += TILES * 256) {
		for (u32 t = 0; t < TILES; t++) {
			u64 j = j0 + t * 256 + threadIdx.x;
			bool take = j < l.degree && (i64)j != l.loop && hash_at(random, l.sources[j]) < below;
			lanes[t] = __ballot_sync(ALL_LANES, take);
			if (LANE == 0) taken[t * WARPS + warp] = __popc(lanes[t]);
		}
		__syncthreads();
		for (u32 i = 0; i < TILES * WARPS; i++) {
			u32 t = i / WARPS;
			u64 place = count + __popc(lanes[t] & LANES_BELOW);
			if (i % WARPS == warp && (lanes[t] >> LANE & 1) && place < room) chosen[place] = j0 + t * 256 + threadIdx.x;
			count += taken[i];
		}
		__syncthreads();
	}
	return count;
}

// each_list has a warp do list(v, false) for each of n nodes, and the block list(v, true) where that gives true.
template <class Do> DEVICE void each_list(u64 n, Do list) {
	__shared__ u32 is_long[WARPS];
	u32 warp = threadIdx.x / 32;
	for (u64 v0 = (u64)blockIdx.x * WARPS; v0 < n; v0 += (u64)gridDim.x * WARPS) {
		bool left = v0 + warp < n && list(v0 + warp, false);
		if (LANE == 0) is_long[warp] = left;
		__syncthreads();
		for (u32 i = 0; i < WARPS; i++)
			if (is_long[i]) list(v0 + i, true);
		__syncthreads();
	}
}

KERNEL(count_labor, GRAPH, u32 *counts, u64 *read, const u32 *nodes, u64 destinations) {
	u64 bytes = 0, edge_bytes = all_weights ? 8 : 4;
	each_list(destinations, [&](u64 v, bool by_block) {
		if (nodes[v] >= graph_nodes) return false;
		List l = LIST_OF(nodes[v]);
		u64 d = choices(l);
		if (all_chosen(d, fanout, flags)) return false;
		if (!by_block && l.degree > LONG_LIST) return true;
		u64 below = threshold(fanout, d);
		u32 count = by_block ? labor_block(nullptr, 0, l, below, random) : labor(nullptr, 0, l, below, random);
		if (by_block ? threadIdx.x == 0 : LANE == 0) {
			counts[v] = count + (flags & ADD_LOOPS ? 1 : 0);
			bytes += read_of(l, count + (l.loop >= 0 ? 1 : 0), edge_bytes, true);
		}
		return false;
	});
	add_total(read, bytes);
}

// Sums of numbers up to each place, in two kernels: of up to 256 slabs, a block each; and within slabs. starts are [n+1];
// values may be its elements from 1 on.
KERNEL(scan_sums, u64 *sums, const u32 *values, u64 n, u64 slab) {
	u64 first = blockIdx.x * slab, end = first + slab < n ? first + slab : n, sum = 0;
	for (u64 i = first + threadIdx.x; i < end; i += 256) sum += values[i];
	sum = block_sum(sum);
	if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

KERNEL(scan_within, u32 *starts, const u32 *values, const u64 *sums, u64 n, u64 slab, u64 *total) {
	__shared__ u32 shared[256];
	u64 first = blockIdx.x * slab, end = first + slab < n ? first + slab : n;
	u64 of_slab = threadIdx.x < gridDim.x ? sums[threadIdx.x] : 0;
	u32 before = (u32)block_sum(threadIdx.x < blockIdx.x ? of_slab : 0);
	if (blockIdx.x == 0) {
		u64 all = block_sum(of_slab);
		if (threadIdx.x == 0) { starts[0] = 0; *total = all; }
	}
	for (u64 i0 = first; i0 < end; i0 += 256) {
		u64 i = i0 + threadIdx.x;
		shared[threadIdx.x] = i < end ? values[i] : 0;
		__syncthreads();
		for (u32 k = 1; k < 256; k *= 2) {
			u32 left = threadIdx.x >= k ? shared[threadIdx.x - k] : 0;
			__syncthreads();
			shared[threadIdx.x] += left;
			__syncthreads();
		}
		if (i < end) starts[i + 1] = before + shared[threadIdx.x];
		before += shared[255];
		__syncthreads();
	}
}

// flags[v] tells that random numbers are drawn for nodes[v].
KERNEL(count_drawing, GRAPH, u32 *drawing, const u32 *nodes, u64 destinations, Fault *fault, u64 operation) {
	FOR_EACH(v, destinations) {
		drawing[v] = 0;
		if (nodes[v] >= graph_nodes) report(fault, operation, NO_SUCH_NODE, v, 0, nodes[v], (i64)graph_nodes);
		else drawing[v] = draws(choices(LIST_OF(nodes[v])), fanout, flags) > 0;
	}
}

// A thread for each node draws: with replacement, or a subset (Floyd; Bentley 1987), which it looks through
// for each place. chosen are places among the edges to choose among, without a self-loop.
KERNEL(choose_drawn, GRAPH, u64 *chosen, u64 edges, const u32 *starts, const u32 *drawing, const u32 *nodes, u64 destinations) {
	FOR_EACH(v, destinations) {
		if (nodes[v] >= graph_nodes) continue;
		u64 d = choices(LIST_OF(nodes[v])), k = draws(d, fanout, flags), number = drawing[v] * k;
		u64 to = starts[v] + (u64)(flags & ADD_LOOPS ? 1 : 0);
		if (k == 0 || to + k > edges) continue;
		u64 *places = chosen + to;
		for (u64 i = 0; i < k; i++) {
			u64 hash = hash_at(random, number + i);
			if (flags & REPLACE) { places[i] = __umul64hi(hash, d); continue; }
			u64 last = d - k + i, place = __umul64hi(hash, last + 1);
			for (u64 before = 0; before < i; before++)
				if (places[before] == place) { place = last; break; }
			places[i] = place;
		}
	}
}

KERNEL(choose_labor, GRAPH, u64 *chosen, u64 edges, const u32 *starts, const u32 *nodes, u64 destinations) {
	each_list(destinations, [&](u64 v, bool by_block) {
		if (nodes[v] >= graph_nodes) return false;
		List l = LIST_OF(nodes[v]);
		u64 d = choices(l), to = starts[v] + (u64)(flags & ADD_LOOPS ? 1 : 0);
		if (all_chosen(d, fanout, flags) || starts[v + 1] > edges || to > starts[v + 1]) return false;
		if (!by_block && l.degree > LONG_LIST) return true;
		u64 room = starts[v + 1] - to, below = threshold(fanout, d); // offsets of other edges have less room
		if (by_block) labor_block(chosen + to, room, l, below, random);
		else labor(chosen + to, room, l, below, random);
		return false;
	});
}

// A thread for each edge writes its source and its weight.
KERNEL(write_sampled, GRAPH, u32 *to_sources, float *to_weights, const u64 *chosen, u64 edges, const u32 *starts, const u32 *nodes, u64 destinations,
	const float *row_factors, const float *column_factors, Fault *fault, u64 operation) {
	FOR_EACH(e, edges) {
		u64 low = 0, high = destinations; // starts[low] <= e < starts[high]
		while (high - low > 1) {
			u64 middle = (low + high) / 2;
			if (starts[middle] <= e) low = middle;
			else high = middle;
		}
		u32 node = nodes[low];
		if (starts[low] > e || starts[low + 1] <= e || node >= graph_nodes) {
			report(fault, operation, OTHER_COUNTS, e, 0, node, 0);
			continue;
		}
		List l = LIST_OF(node);
		u64 d = choices(l), i = e - starts[low], edge = NO_EDGE; // a place in the list
		float w = 1;
		if ((flags & ADD_LOOPS) && i == 0) {
			if (l.loop >= 0) edge = l.loop;
		} else {
			if (flags & ADD_LOOPS) i--;
			bool all = all_chosen(d, fanout, flags);
			u64 place = all ? i : chosen[e];
			if (!all) w = (float)((double)d / (double)fanout);
			if (l.loop >= 0 && place >= (u64)l.loop && (all || !(flags & LABOR))) place++;
			if (place >= l.degree) {
				report(fault, operation, OTHER_COUNTS, e, 0, node, 0);
				continue;
			}
			edge = place;
		}
		u32 source = edge == NO_EDGE ? node : l.sources[edge];
		if (source >= graph_nodes) {
			report(fault, operation, NO_SUCH_NODE, e, 0, source, (i64)graph_nodes);
			continue;
		}
		if (flags & MEAN) w *= l.degree ? (float)(1 / (double)l.degree) : 0;
		else if (row_factors) w *= row_factors[node];
		if (l.weights && edge != NO_EDGE) w *= l.weights[edge];
		if (column_factors) w *= column_factors[source];
		to_sources[e] = source;
		to_weights[e] = w;
	}
}

// A hash table of nodes has a word for each: the node, and below it the first place at which it comes, or
// its local id. It is larger than there are nodes, and empty words are all ones, which no node gives, as
// there are fewer than 2^32-1 places. A node is entered once and stays where it is.
DEVICE u64 first_slot(u32 node, u64 mask) { return ((u64)node * 0x9e3779b97f4a7c15ull >> 20) & mask; }

KERNEL(enter_nodes, u64 *table, u64 mask, const u32 *nodes, u64 known, const u32 *items, u64 count) {
	FOR_EACH(i, known + count) {
		u32 node = i < known ? nodes[i] : items[i - known];
		u64 word = (u64)node << 32 | i;
		for (u64 slot = first_slot(node, mask);; slot = (slot + 1) & mask) { // what atomics say is never out of date
			u64 before = atomicCAS(&table[slot], ~0ull, word);
			if (before == ~0ull) break;
			if (before >> 32 != node) continue;
			atomicMin(&table[slot], word);
			break;
		}
	}
}

KERNEL(find_first, u32 *first, u32 *slots, const u64 *table, u64 mask, u64 known, const u32 *items, u64 count) {
	FOR_EACH(i, count) {
		u64 slot = first_slot(items[i], mask);
		while (table[slot] >> 32 != items[i]) slot = (slot + 1) & mask; // it is there
		slots[i] = (u32)slot;
		first[i] = (u32)table[slot] == known + i;
	}
}

// starts are the sums of first: [count+1].
KERNEL(add_nodes, u64 *table, u32 *nodes, u64 known, const u32 *starts, const u32 *slots, const u32 *items, u64 count) {
	FOR_EACH(i, count) {
		if (starts[i] == starts[i + 1]) continue;
		u64 id = known + starts[i];
		nodes[id] = items[i];
		table[slots[i]] = (u64)items[i] << 32 | id;
	}
}

KERNEL(write_ids, u32 *ids, u32 *nodes_count, const u64 *table, u64 known, const u32 *starts, const u32 *slots, u64 count) {
	FOR_EACH(i, count + 1) {
		if (i == count) *nodes_count = (u32)(known + starts[count]);
		else ids[i] = (u32)table[slots[i]];
	}
}

struct alignas(16) unit16 { u64 lo, hi; }; // moved by one access

// dst[i,:] = cached[slots[index[i]],:] or src[index[i],:]; rows are cols units, strides count units.
#define GATHER_CACHED(name, Unit) \
	KERNEL(name, Unit *dst, u64 dst_stride, const Unit *src, u64 src_stride, const u32 *index, u64 rows, u64 cols, u64 sources, const Unit *cached, u64 cached_stride, u64 cached_rows, const u32 *slots, u64 *hits, Fault *fault, u64 operation) { \
		u64 found = 0; \
		FOR_EACH(i, rows * cols) { \
			u64 row = divide(i, cols), column = i - row * cols, from = index[row]; \
			if (from >= sources) { \
				report(fault, operation, INDEX_OUT_OF_RANGE, row, 0, (i64)from, (i64)sources); \
				continue; \
			} \
			u64 slot = slots[from]; \
			if (slot < cached_rows) { \
				dst[row * dst_stride + column] = cached[slot * cached_stride + column]; \
				if (column == 0) found++; \
			} else dst[row * dst_stride + column] = src[from * src_stride + column]; \
		} \
		add_total(hits, found); \
	}
GATHER_CACHED(gather_cached_1, u8)
GATHER_CACHED(gather_cached_2, u16)
GATHER_CACHED(gather_cached_4, u32)
GATHER_CACHED(gather_cached_8, u64)
GATHER_CACHED(gather_cached_16, unit16)
