/* Rings, each with a loader, a caller and a thread that releases batches, all at once. It is compiled with ring.c and
 * error.c under ThreadSanitizer (ring_test.go). */
#include "ring.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #what, hopfeed_last_error()), abort()))

enum { MOST = 6, BATCHES = 11, EPOCHS = 60, PAIRS = 4, STALE = -1 };

typedef struct {
    hopfeed_loader number;
    hopfeed_ring *ring;
    int64_t size, most;     /* buffers */
    int starves;            /* for want of memory, at times */
    int64_t memory[MOST];   /* of batches: what fill says. Not atomic, so that the sanitizer sees who may touch it. */
    hopfeed_hold held[MOST]; /* the batches that they have; 0: none */
    pthread_t thread;
    /* Batches that the caller leaves to another thread to release. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    hopfeed_batch bag[MOST];
    int in_bag, over;
    unsigned random;
} pair;

static int64_t content(int64_t epoch, int64_t index) { return 1000 * epoch + index; }

/* What client.go does: takes released buffers back, and adds one that is needed. */
static int collect(pair *p) {
    for (;;) {
        hopfeed_hold holds[MOST];
        int64_t released;
        int32_t grow, wanted = hopfeed_ring_collect(p->ring, holds, &released, &grow);
        for (int64_t i = 0; i < released; i++)
            for (int64_t k = 0; k < p->size; k++)
                if (p->held[k] == holds[i]) p->held[k] = 0, p->memory[k] = STALE;
        if (!grow) return wanted;
        if (p->size < p->most) {
            p->size++;
            hopfeed_ring_grow(p->ring, NULL);
        } else {
            hopfeed_ring_grow(p->ring, strdup("hold fewer"));
        }
    }
}

static void run(pair *p, int64_t epoch, int64_t first) {
    if (!collect(p)) return;
    for (int64_t index = first; index < BATCHES; index++) {
        int64_t k = 0;
        while (k < p->size && p->held[k]) k++;
        CHECK(k < p->size);
        p->memory[k] = content(epoch, index);
        hopfeed_block block = {.edges = index};
        hopfeed_batch batch = {.index = index, .features = &p->memory[k], .layers = 1, .blocks = &block};
        hopfeed_ring_put(p->ring, &batch);
        p->held[k] = batch.hold;
        if (p->starves && index + 1 < BATCHES && (epoch + index) % 4 == 0) hopfeed_ring_starve(p->ring, strdup("hold fewer")); /* as if memory were full */
        if (!collect(p)) return;
    }
}

static void *serve(void *of) {
    pair *p = of;
    int64_t epoch, first;
    while (hopfeed_ring_wait(p->ring, &epoch, &first)) {
        run(p, epoch, first);
        hopfeed_ring_end(p->ring, HOPFEED_END, NULL);
    }
    return NULL;
}

static void *release(void *of) {
    pair *p = of;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (!p->in_bag && !p->over) pthread_cond_wait(&p->changed, &p->mutex);
        if (!p->in_bag) break;
        hopfeed_batch batch = p->bag[--p->in_bag];
        pthread_mutex_unlock(&p->mutex);
        CHECK(*(const int64_t *)batch.features != STALE);
        hopfeed_release(batch.hold);
        hopfeed_release(batch.hold); /* once more does nothing */
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void let_go(pair *p, const hopfeed_batch *batch) {
    pthread_mutex_lock(&p->mutex);
    p->bag[p->in_bag++] = *batch;
    pthread_mutex_unlock(&p->mutex);
    pthread_cond_signal(&p->changed);
}

static void open_pair(pair *p, hopfeed_loader number, int64_t size, int64_t most, char *full) {
    memset(p, 0, sizeof *p);
    p->number = number, p->size = size, p->most = most, p->random = number;
    p->ring = hopfeed_ring_open(number, size, most, BATCHES, 1, full);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    pthread_create(&p->thread, NULL, serve, p);
}

static void close_pair(pair *p) {
    hopfeed_ring_stop(p->ring);
    pthread_join(p->thread, NULL);
    hopfeed_ring_close(p->ring);
}

/* The next batch, or END or OPTIONS. */
static int32_t take(pair *p, hopfeed_batch *batch) {
    int32_t status;
    batch->hold = 0;
    do status = hopfeed_next(p->number, 20, batch);
    while (status == HOPFEED_WAIT);
    return status;
}

/* Some epochs end early. Batches are released at once, by another thread, or not before the next epoch. */
static void use(pair *p) {
    pthread_t releaser;
    pthread_create(&releaser, NULL, release, p);
    hopfeed_batch kept[MOST];
    int64_t keeps = 0;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t first = rand_r(&p->random) % BATCHES, stop = rand_r(&p->random) % (3 * BATCHES), index = first;
        CHECK(hopfeed_epoch(p->number, epoch, first) == HOPFEED_DONE);
        while (keeps > rand_r(&p->random) % 3) hopfeed_release(kept[--keeps].hold);
        while (index < stop) {
            hopfeed_batch batch;
            int32_t status = take(p, &batch);
            if (status == HOPFEED_END) break;
            if (status == HOPFEED_OPTIONS) { /* all are held, here or in the bag */
                CHECK(strstr(hopfeed_last_error(), "batch buffers are held"));
                if (keeps) hopfeed_release(kept[--keeps].hold);
                continue;
            }
            CHECK(status == HOPFEED_DONE && batch.index == index && batch.blocks->edges == index);
            CHECK(*(const int64_t *)batch.features == content(epoch, index));
            for (int64_t k = 0; k < keeps; k++) CHECK(*(const int64_t *)kept[k].features % 1000 == kept[k].index);
            index++;
            switch (rand_r(&p->random) % 3) {
            case 0: hopfeed_release(batch.hold); break;
            case 1: let_go(p, &batch); break;
            default: kept[keeps++] = batch;
            }
        }
        CHECK(index == BATCHES || index >= stop);
    }
    pthread_mutex_lock(&p->mutex);
    p->over = 1;
    pthread_mutex_unlock(&p->mutex);
    pthread_cond_signal(&p->changed);
    pthread_join(releaser, NULL);
}

/* Several loaders one after the other, whose rings are used again by each other. */
static void *many(void *of) {
    int64_t at = (int64_t)of;
    for (int64_t i = 0; i < 6; i++) {
        pair p;
        int grows = (at + i) % 2;
        open_pair(&p, 1 + at + PAIRS * i, grows ? 2 : 3, grows ? MOST : 3, grows ? NULL : strdup("release one"));
        p.starves = i % 3;
        use(&p);
        close_pair(&p);
    }
    return NULL;
}

static void test_all_at_once(void) {
    pthread_t threads[PAIRS];
    for (int64_t i = 0; i < PAIRS; i++) pthread_create(&threads[i], NULL, many, (void *)i);
    for (int64_t i = 0; i < PAIRS; i++) pthread_join(threads[i], NULL);
}

static void test_an_epoch_ends_while_all_buffers_are_held(void) {
    pair p;
    for (int64_t buffers = 1; buffers <= MOST; buffers++) {
        open_pair(&p, 100 + buffers, buffers, buffers, strdup("release one"));
        hopfeed_batch batch;
        CHECK(hopfeed_epoch(p.number, 0, BATCHES - buffers) == HOPFEED_DONE);
        for (int64_t i = 0; i < buffers; i++) CHECK(take(&p, &batch) == HOPFEED_DONE);
        CHECK(take(&p, &batch) == HOPFEED_END);
        CHECK(hopfeed_epoch(p.number, 1, 0) == HOPFEED_DONE);
        CHECK(take(&p, &batch) == HOPFEED_OPTIONS);
        close_pair(&p);
    }
}

static void test_buffers_are_added_up_to_the_most(void) {
    pair p;
    open_pair(&p, 200, 2, 5, NULL);
    hopfeed_batch batch[5], none;
    CHECK(hopfeed_epoch(p.number, 0, 0) == HOPFEED_DONE);
    for (int i = 0; i < 5; i++) CHECK(take(&p, &batch[i]) == HOPFEED_DONE);
    for (int again = 0; again < 2; again++) {
        CHECK(take(&p, &none) == HOPFEED_OPTIONS);
        CHECK(!strcmp(hopfeed_last_error(), "all 5 batch buffers are held, the oldest by batch 0, the newest by batch 4: hold fewer"));
    }
    for (int i = 0; i < 5; i++) CHECK(*(const int64_t *)batch[i].features == content(0, i));
    hopfeed_release(batch[1].hold);
    CHECK(take(&p, &batch[1]) == HOPFEED_DONE && batch[1].index == 5);
    close_pair(&p);
}

static hopfeed_loader closing = 300;

static void *wait_for_batch(void *unused) {
    hopfeed_batch batch = {0};
    CHECK(hopfeed_next(closing, 60000, &batch) == HOPFEED_OPTIONS);
    return unused;
}

static void test_who_waits_for_a_loader_that_closes_gets_no_batch_of_the_next(void) {
    hopfeed_ring *ring = hopfeed_ring_open(closing, 2, 2, BATCHES, 0, strdup("release one"));
    CHECK(hopfeed_epoch(closing, 0, 0) == HOPFEED_DONE);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, wait_for_batch, NULL);
    usleep(50000); /* some wait in the ring by then; whoever comes later gets the same answer */
    hopfeed_ring_close(ring);
    CHECK(hopfeed_ring_open(closing + 1, 2, 2, BATCHES, 0, strdup("release one")) == ring); /* used again */
    CHECK(hopfeed_epoch(closing + 1, 0, 0) == HOPFEED_DONE);
    int64_t epoch, first;
    CHECK(hopfeed_ring_wait(ring, &epoch, &first) == 1);
    hopfeed_batch batch = {.index = 7};
    hopfeed_ring_put(ring, &batch);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    batch.hold = 0;
    CHECK(hopfeed_next(closing + 1, 0, &batch) == HOPFEED_DONE && batch.index == 7);
    hopfeed_ring_close(ring);
}

int main(void) {
    alarm(300);
    test_an_epoch_ends_while_all_buffers_are_held();
    test_buffers_are_added_up_to_the_most();
    test_who_waits_for_a_loader_that_closes_gets_no_batch_of_the_next();
    test_all_at_once();
    return 0;
}
