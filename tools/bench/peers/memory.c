// What the memory gives to a loader: copying in order, and gathering rows at random.
//
//   cc -O3 -march=native -pthread memory.c -o memory
//   ./memory THREADS [ROW_BYTES]
//
// memcpy copies 1 GiB, each thread a part. The others move rows of ROW_BYTES (default 1600, a multiple
// of 64) of 1.44 GB into batches of 12.8 MB, a batch a thread at a time. Prints a JSON object a way:
// median of nine rounds in turn, in bytes a second of the clock and of the threads' processor time.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { MOST = 256, ROUNDS = 9, AHEAD = 32, LINE = 64 };
enum way { MEMCPY, READ, COPY, STREAM, STREAM_AHEAD, IN_ORDER, WAYS };
static const char *names[] = {"memcpy", "rows read", "rows copied", "rows copied past the caches", "rows copied past the caches, fetched ahead", "rows in order, likewise"};
static const long copied = 1l << 30, input = 1440000000, batch_bytes = 12800000;
typedef int64_t line __attribute__((vector_size(LINE), aligned(8)));

static char *src, *dst;
static uint32_t *order, *random_order, *ascending;
static long threads, row_bytes = 1600, rows, batch;
static enum way way;
static volatile int64_t sink;

static char *map(long bytes) {
	char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) { perror("mmap"); exit(1); }
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

static inline void stream(char *to, line v) {
#ifdef __AVX512F__
	_mm512_stream_si512((void *)to, (__m512i)v);
#else
	*(line *)to = v;
#endif
}

static void *work(void *arg) {
	long me = (long)arg;
	if (way == MEMCPY) {
		long share = copied / threads;
		memcpy(dst + me * share, src + me * share, share);
		return 0;
	}
	line sum = {0};
	for (long b = me; b < rows / batch; b += threads)
		for (long i = 0; i < batch; i++) {
			const uint32_t *at = order + b * batch + i;
			const char *from = src + *at * row_bytes, *next = src + at[i + AHEAD < batch ? AHEAD : 0] * row_bytes;
			char *to = dst + me * batch_bytes + i * row_bytes;
			for (long k = 0; k < row_bytes; k += LINE) {
				line v = *(const line *)(from + k);
				if (way >= STREAM_AHEAD) __builtin_prefetch(next + k, 0, 2);
				if (way == READ) sum += v;
				else if (way == COPY) *(line *)(to + k) = v;
				else stream(to + k, v);
			}
		}
	sink = sum[0];
	return 0;
}

static double now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascends(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	threads = argc > 1 ? atol(argv[1]) : 0;
	if (argc > 2) row_bytes = atol(argv[2]);
	if (threads < 1 || threads > MOST || row_bytes < LINE || row_bytes % LINE || row_bytes > 1 << 20) {
		fprintf(stderr, "usage: memory THREADS [ROW_BYTES], 1 to %d threads and a multiple of %d bytes, at most 1 MiB\n", MOST, LINE);
		return 2;
	}
	rows = input / row_bytes, batch = batch_bytes / row_bytes;
	src = map(input), dst = map(copied > threads * batch_bytes ? copied : threads * batch_bytes);
	random_order = malloc(rows * 4), ascending = malloc(rows * 4);
	for (long i = 0; i < rows; i++) random_order[i] = ascending[i] = i;
	for (long i = rows - 1; i > 0; i--) {
		long j = random() % (i + 1);
		uint32_t x = random_order[i];
		random_order[i] = random_order[j], random_order[j] = x;
	}
	double seconds[WAYS][ROUNDS], cores[WAYS][ROUNDS];
	for (int r = 0; r < ROUNDS; r++)
		for (way = 0; way < WAYS; way++) {
			pthread_t id[MOST];
			order = way == IN_ORDER ? ascending : random_order;
			double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
			for (long i = 0; i < threads; i++) pthread_create(&id[i], 0, work, (void *)i);
			for (long i = 0; i < threads; i++) pthread_join(id[i], 0);
			seconds[way][r] = now(CLOCK_MONOTONIC) - wall, cores[way][r] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		}
	for (way = 0; way < WAYS; way++) {
		double moved = way == MEMCPY ? copied / threads * threads : rows / batch * batch * row_bytes;
		qsort(seconds[way], ROUNDS, sizeof(double), ascends);
		qsort(cores[way], ROUNDS, sizeof(double), ascends);
		printf("{\"name\": \"%s\", \"bytes_per_second\": %.0f, \"bytes_per_core_second\": %.0f}\n",
		       names[way], moved / seconds[way][ROUNDS / 2], moved / cores[way][ROUNDS / 2]);
	}
}
