// What the memory gives for rows at random places: gather [ROW_BYTES]. Two threads, batches of 12.8 MB out of 1.44 GB; for each way the best of nine, in GB/s of the threads' processor time.
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 2, ROUNDS = 9, AHEAD = 32, BATCH = 12800000 };
enum way { READ, COPY, STREAM, STREAM_AHEAD, IN_ORDER, WAYS };
static const char *names[] = {"read", "copied", "past the caches", "past the caches, rows ahead fetched", "the same, rows in order"};
static const long memory = 1441200000;
static char *src, *dst;
static uint32_t *order, *random_order, *ascending;
static long row_bytes = 1600, rows;
static enum way way;
static volatile int sink;

static char *map(long bytes) {
	char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) { perror("mmap"); exit(1); }
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

static void *run(void *arg) {
	long batch = BATCH / row_bytes, me = (long)arg;
	__m512i sum = _mm512_setzero_si512();
	for (long b = me; b < rows / batch; b += THREADS)
		for (long i = 0; i < batch; i++) {
			const uint32_t *at = order + b * batch + i;
			const char *from = src + *at * row_bytes, *next = src + at[i + AHEAD < batch ? AHEAD : 0] * row_bytes;
			char *to = dst + b % THREADS * BATCH + i * row_bytes;
			for (long k = 0; k < row_bytes; k += 64) {
				__m512i line = _mm512_loadu_si512(from + k);
				if (way >= STREAM_AHEAD) _mm_prefetch(next + k, _MM_HINT_T1);
				if (way == READ) sum = _mm512_add_epi32(sum, line);
				else if (way == COPY) _mm512_storeu_si512(to + k, line);
				else _mm512_stream_si512((void *)(to + k), line);
			}
		}
	sink = _mm512_reduce_add_epi32(sum);
	return 0;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc > 1) row_bytes = atol(argv[1]);
	if (row_bytes < 64 || row_bytes % 64 || row_bytes > 1 << 20) { fprintf(stderr, "rows of %ld bytes: want a multiple of 64\n", row_bytes); return 2; }
	rows = memory / row_bytes;
	src = map(memory), dst = map(THREADS * BATCH);
	random_order = malloc(rows * 4), ascending = malloc(rows * 4);
	for (long i = 0; i < rows; i++) random_order[i] = ascending[i] = i;
	for (long i = rows - 1; i > 0; i--) {
		long j = random() % (i + 1);
		uint32_t x = random_order[i];
		random_order[i] = random_order[j], random_order[j] = x;
	}
	double best[WAYS] = {0};
	for (int r = 0; r < ROUNDS; r++)
		for (way = 0; way < WAYS; way++) {
			pthread_t id[THREADS];
			order = way == IN_ORDER ? ascending : random_order;
			double start = now();
			for (long i = 0; i < THREADS; i++) pthread_create(&id[i], 0, run, (void *)i);
			for (long i = 0; i < THREADS; i++) pthread_join(id[i], 0);
			long batch = BATCH / row_bytes;
			double rate = THREADS * (double)(rows / batch * batch * row_bytes) / (now() - start) / 1e9;
			if (rate > best[way]) best[way] = rate;
		}
	for (way = 0; way < WAYS; way++) printf("%-40s %.1f GB/s\n", names[way], best[way]);
}
