#define _GNU_SOURCE
#include "ring.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void hopfeed_set_error(char *text);

/* Before an epoch has begun; not seen by callers. */
enum { NO_EPOCH = -3 };

typedef enum { EMPTY, READY, TAKEN, RELEASED } slot_state;

typedef struct {
    slot_state state;
    hopfeed_batch batch;
    hopfeed_block *blocks; /* of the batch, in memory of the ring */
} slot;

struct hopfeed_ring {
    hopfeed_ring *next;     /* of all */
    hopfeed_loader loader;  /* 0: closed */
    pthread_cond_t ready;   /* a batch, or the end of the epoch */
    pthread_cond_t changed; /* released, requested or stopped */
    slot *slots;
    hopfeed_block *blocks; /* of all slots */
    int64_t size, last; /* slots, and the last hold's number */
    int64_t batches;
    int64_t epoch, batch; /* that are requested */
    int requested, stopped;
    int32_t status; /* HOPFEED_WAIT while the epoch runs */
    char *error;
};

static hopfeed_ring *rings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all rings: it is held for an instant */

__attribute__((format(printf, 1, 2))) static int32_t option_error(const char *format, ...) {
    char *text;
    va_list values;
    va_start(values, format);
    if (vasprintf(&text, format, values) >= 0) hopfeed_set_error(text);
    va_end(values);
    return HOPFEED_OPTIONS;
}

static int32_t closed_error(hopfeed_loader loader) {
    return option_error("number %llu is not known: was it closed?", (unsigned long long)loader);
}

/* The ring of an open loader, or null and an error. */
static hopfeed_ring *find(hopfeed_loader loader) {
    for (hopfeed_ring *r = rings; r; r = r->next)
        if (loader && r->loader == loader) return r;
    closed_error(loader);
    return NULL;
}

static int64_t count(const hopfeed_ring *r, slot_state state) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->size; i++) n += r->slots[i].state == state;
    return n;
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (!memory) abort(); /* as Go does */
    return memory;
}

hopfeed_ring *hopfeed_ring_open(hopfeed_loader loader, int64_t buffers, int64_t batches, int64_t layers) {
    pthread_mutex_lock(&mutex);
    hopfeed_ring *r = rings;
    while (r && r->loader) r = r->next;
    if (!r) {
        r = allocate(1, sizeof *r);
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&r->ready, &monotonic);
        pthread_cond_init(&r->changed, NULL);
        r->next = rings;
        rings = r;
    }
    r->loader = loader;
    r->slots = allocate(buffers, sizeof *r->slots);
    r->blocks = allocate(buffers * layers + 1, sizeof *r->blocks);
    for (int64_t i = 0; i < buffers; i++) r->slots[i].blocks = r->blocks + i * layers;
    r->size = buffers;
    r->batches = batches;
    r->last = r->requested = r->stopped = 0;
    r->status = NO_EPOCH;
    pthread_mutex_unlock(&mutex);
    return r;
}

int32_t hopfeed_ring_wait(hopfeed_ring *r, int64_t *epoch, int64_t *batch) {
    pthread_mutex_lock(&mutex);
    while (!r->stopped && !r->requested) pthread_cond_wait(&r->changed, &mutex);
    r->requested = 0;
    *epoch = r->epoch;
    *batch = r->batch;
    int32_t wanted = !r->stopped;
    pthread_mutex_unlock(&mutex);
    return wanted;
}

void hopfeed_ring_put(hopfeed_ring *r, hopfeed_batch *batch) {
    pthread_mutex_lock(&mutex);
    slot *s = r->slots;
    while (s->state != EMPTY) s++;
    batch->hold = r->loader << 32 | (uint32_t)++r->last;
    if (batch->layers) memcpy(s->blocks, batch->blocks, batch->layers * sizeof *s->blocks);
    s->batch = *batch;
    s->batch.blocks = batch->layers ? s->blocks : NULL;
    s->state = r->requested ? RELEASED : READY;
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&r->ready);
}

int32_t hopfeed_ring_collect(hopfeed_ring *r, hopfeed_hold *holds, int64_t *released) {
    pthread_mutex_lock(&mutex);
    while (!r->stopped && !r->requested && !count(r, RELEASED) && !count(r, EMPTY)) pthread_cond_wait(&r->changed, &mutex);
    *released = 0;
    for (slot *s = r->slots; s < r->slots + r->size; s++) {
        if (s->state != RELEASED) continue;
        s->state = EMPTY;
        holds[(*released)++] = s->batch.hold;
    }
    int32_t wanted = !r->stopped && !r->requested;
    pthread_mutex_unlock(&mutex);
    return wanted;
}

void hopfeed_ring_end(hopfeed_ring *r, int32_t status, char *error) {
    pthread_mutex_lock(&mutex);
    if (r->requested) {
        free(error);
    } else {
        r->status = status;
        r->error = error;
    }
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&r->ready);
}

void hopfeed_ring_stop(hopfeed_ring *r) {
    pthread_mutex_lock(&mutex);
    r->stopped = 1;
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&r->changed);
}

void hopfeed_ring_close(hopfeed_ring *r) {
    pthread_mutex_lock(&mutex);
    free(r->slots);
    free(r->blocks);
    free(r->error);
    r->slots = NULL;
    r->blocks = NULL;
    r->error = NULL;
    r->size = r->loader = 0;
    /* Under the mutex: whoever waits must have left before another loader has the ring. */
    pthread_cond_broadcast(&r->ready);
    pthread_mutex_unlock(&mutex);
}

int32_t hopfeed_epoch(hopfeed_loader loader, int64_t epoch, int64_t batch) {
    int32_t status = HOPFEED_OPTIONS;
    pthread_mutex_lock(&mutex);
    hopfeed_ring *r = find(loader);
    if (r && (epoch < 0 || batch < 0 || batch > r->batches)) {
        option_error("epoch %lld from batch %lld: an epoch has %lld batches", (long long)epoch, (long long)batch, (long long)r->batches);
    } else if (r) {
        for (slot *s = r->slots; s < r->slots + r->size; s++)
            if (s->state == READY) s->state = RELEASED;
        free(r->error);
        r->error = NULL;
        r->epoch = epoch;
        r->batch = batch;
        r->requested = 1;
        status = HOPFEED_DONE;
        r->status = HOPFEED_WAIT;
        pthread_cond_signal(&r->changed);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Takes the batch that has been ready longest, or returns HOPFEED_WAIT or what ended the epoch. */
static int32_t take(hopfeed_ring *r, hopfeed_batch *out) {
    slot *first = NULL;
    for (slot *s = r->slots; s < r->slots + r->size; s++)
        if (s->state == READY && (!first || s->batch.index < first->batch.index)) first = s;
    if (first) {
        first->state = TAKEN;
        *out = first->batch;
        return HOPFEED_DONE;
    }
    if (r->error) hopfeed_set_error(strdup(r->error));
    return r->status;
}

/* Releases a batch, if the caller has it. */
static void release(hopfeed_hold hold) {
    for (hopfeed_ring *r = rings; r; r = r->next) {
        if (r->loader != hold >> 32) continue;
        for (slot *s = r->slots; s < r->slots + r->size; s++) {
            if (s->state != TAKEN || s->batch.hold != hold) continue;
            s->state = RELEASED;
            pthread_cond_signal(&r->changed);
        }
    }
}

/* The batch that has been ready longest, or what there is instead, waiting until a time. */
static int32_t next(hopfeed_loader loader, const struct timespec *until, hopfeed_batch *batch) {
    hopfeed_ring *r = find(loader);
    if (!r) return HOPFEED_OPTIONS;
    if (r->status == NO_EPOCH) return option_error("no epoch was begun");
    if (count(r, TAKEN) == r->size)
        return option_error("all %lld batch buffers are held: release a batch, or open the loader with more buffers", (long long)r->size);
    for (int late = 0;; late = pthread_cond_timedwait(&r->ready, &mutex, until)) {
        if (r->loader != loader) return closed_error(loader);
        int32_t status = take(r, batch);
        if (status != HOPFEED_WAIT || late) return status;
    }
}

int32_t hopfeed_next(hopfeed_loader loader, int32_t milliseconds, hopfeed_batch *batch) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + milliseconds * 1000000LL;
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&mutex);
    release(batch->hold);
    batch->hold = 0;
    int32_t status = next(loader, &until, batch);
    pthread_mutex_unlock(&mutex);
    return status;
}

int32_t hopfeed_release(hopfeed_hold hold) {
    pthread_mutex_lock(&mutex);
    release(hold);
    pthread_mutex_unlock(&mutex);
    return HOPFEED_DONE;
}
