// One hop of D^-1/2 (A+I) D^-1/2 in C, by the contract of Hopfeed's propagation (preprop/hop.go), so
// that the results are the same, bit for bit: the terms t[u] * x[u] of a row are added in the order of
// its list, multiplied and then added, in blocks of 1024; the sum of the blocks is multiplied by t[v].
//
//   cc -O3 -march=native -ffp-contract=off -fopenmp -DFEATURES=128 hop.c -o hop
//   ./hop FOLDER THREADS HOPS [OUT]
//
// FOLDER has indptr.bin (int64 [n+1]), indices.bin (int32 [m], self-loops included), factors.bin
// (float32 [n]: t) and x.bin (float32 [n, FEATURES]). FEATURES is a multiple of 16. Rows are fetched
// ahead, results are written past the caches where the processor can, and matrices lie in huge pages.
// It prints the fastest of HOPS hops and the least processor time of one, as JSON.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { LANES = 16, VECTORS = FEATURES / LANES, BLOCK = 1024, AHEAD = 8, ROWS = 256 };
_Static_assert(FEATURES % LANES == 0, "FEATURES must be a multiple of 16");
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

static int64_t n, *indptr;
static int32_t *indices;
static float *factors, *x, *out;

static void *map(size_t bytes) {
	void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) { perror("mmap"); exit(1); }
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0, bytes); // so that it is there
	return p;
}

static void *load(const char *folder, const char *name, size_t *bytes) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%s.bin", folder, name);
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END)) { perror(path); exit(1); }
	*bytes = ftell(f);
	rewind(f);
	void *p = map(*bytes);
	if (fread(p, 1, *bytes, f) != *bytes) { perror(path); exit(1); }
	fclose(f);
	return p;
}

static inline void store(float *to, lanes v) {
#ifdef __AVX512F__
	if (((uintptr_t)to & 63) == 0) { _mm512_stream_ps(to, (__m512)v); return; }
#endif
	*(lanes *)to = v;
}

static void row(int64_t v) {
	lanes total[VECTORS] = {0};
	for (int64_t e = indptr[v], end = indptr[v + 1]; e < end;) {
		lanes sum[VECTORS] = {0};
		for (int64_t stop = end - e > BLOCK ? e + BLOCK : end; e < stop; e++) {
			const float *ahead = x + (int64_t)indices[e + AHEAD < indptr[n] ? e + AHEAD : e] * FEATURES;
			const float *from = x + (int64_t)indices[e] * FEATURES, t = factors[indices[e]];
			for (int k = 0; k < VECTORS; k++) {
				__builtin_prefetch(ahead + LANES * k);
				sum[k] += t * *(const lanes *)(from + LANES * k);
			}
		}
		for (int k = 0; k < VECTORS; k++) total[k] += sum[k];
	}
	for (int k = 0; k < VECTORS; k++) store(out + v * FEATURES + LANES * k, factors[v] * total[k]);
}

static double now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc < 4) { fprintf(stderr, "usage: hop FOLDER THREADS HOPS [OUT]\n"); return 2; }
	size_t bytes;
	indptr = load(argv[1], "indptr", &bytes), n = bytes / 8 - 1;
	indices = load(argv[1], "indices", &bytes);
	factors = load(argv[1], "factors", &bytes);
	x = load(argv[1], "x", &bytes), out = map(bytes);
	if (bytes != 4ul * FEATURES * n) { fprintf(stderr, "x.bin has %zu bytes, not %ld rows of %d numbers\n", bytes, n, FEATURES); return 1; }
	double fastest = 1e9, least = 1e9;
	omp_set_num_threads(atoi(argv[2]));
	for (int hop = 0; hop < atoi(argv[3]); hop++) {
		double wall = now(CLOCK_MONOTONIC), cores = now(CLOCK_PROCESS_CPUTIME_ID);
#pragma omp parallel for schedule(dynamic, ROWS)
		for (int64_t v = 0; v < n; v++) row(v);
		wall = now(CLOCK_MONOTONIC) - wall, cores = now(CLOCK_PROCESS_CPUTIME_ID) - cores;
		if (wall < fastest) fastest = wall;
		if (cores < least) least = cores;
	}
	printf("{\"seconds\": %.6f, \"core_seconds\": %.6f}\n", fastest, least);
	if (argc > 4) {
		FILE *f = fopen(argv[4], "wb");
		if (!f || fwrite(out, 1, bytes, f) != bytes || fclose(f)) { perror(argv[4]); return 1; }
	}
}
