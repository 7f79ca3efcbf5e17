// What C's memcpy copies from memory to memory: memcpy [THREADS]. 1 GiB, nine times; it prints the median.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST = 256, ROUNDS = 9 };
static const size_t bytes = 1ul << 30;
static char *src, *dst;
static long threads = 2;

static char *map(int value) {
	char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) { perror("mmap"); exit(1); }
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, value, bytes);
	return p;
}

static void *run(void *arg) {
	size_t each = bytes / threads, at = (long)arg * each;
	memcpy(dst + at, src + at, each);
	return 0;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	pthread_t id[MOST];
	double seconds[ROUNDS];
	if (argc > 1) threads = atol(argv[1]);
	if (threads < 1 || threads > MOST) return 2;
	src = map(1), dst = map(2);
	for (int r = 0; r < ROUNDS; r++) {
		double start = now();
		for (long i = 0; i < threads; i++) pthread_create(&id[i], 0, run, (void *)i);
		for (long i = 0; i < threads; i++) pthread_join(id[i], 0);
		seconds[r] = now() - start;
	}
	qsort(seconds, ROUNDS, sizeof *seconds, ascending);
	printf("%.2f GB/s\n", bytes / threads * threads / seconds[ROUNDS / 2] / 1e9);
}
