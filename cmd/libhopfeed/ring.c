#define _GNU_SOURCE
#include "ring.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void hopfeed_set_error(char *text);

/* The clock that waiting goes by: of conditions of macOS it is always the same. */
#ifdef __APPLE__
enum { WAIT_CLOCK = CLOCK_REALTIME };
#else
enum { WAIT_CLOCK = CLOCK_MONOTONIC };
#endif

/* Before an epoch has begun; not seen by callers. */
enum { NO_EPOCH = -3 };

typedef enum { EMPTY, READY, TAKEN, RELEASED } slot_state;

typedef struct {
    slot_state state;
    hopfeed_batch batch; /* whose blocks are in memory of the ring */
} slot;

struct hopfeed_ring {
    hopfeed_ring *next;     /* of all */
    hopfeed_loader loader;  /* 0: closed */
    pthread_cond_t ready;   /* a batch, or the end of the epoch */
    pthread_cond_t changed; /* released, requested, stopped, or one more buffer is needed */
    slot *slots;            /* as many as there can ever be, which take memory when they are used */
    hopfeed_block *blocks;  /* of all slots */
    int64_t size, last;     /* slots that have a buffer, and the last hold's number */
    int64_t batches;
    int64_t epoch, batch; /* that are requested */
    int requested, stopped;
    int complete;   /* all batches of the epoch were put */
    int needs;      /* one more buffer */
    char *full;     /* what to do where all buffers are held; NULL: add one */
    char *starved;  /* while there is no memory for the next batch: what to do where all others are held */
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

hopfeed_ring *hopfeed_ring_open(hopfeed_loader loader, int64_t buffers, int64_t most, int64_t batches, int64_t layers, char *full) {
    pthread_mutex_lock(&mutex);
    hopfeed_ring *r = rings;
    while (r && r->loader) r = r->next;
    if (!r) {
        r = allocate(1, sizeof *r);
        pthread_condattr_t waiting;
        pthread_condattr_init(&waiting);
#ifndef __APPLE__
        pthread_condattr_setclock(&waiting, WAIT_CLOCK);
#endif
        pthread_cond_init(&r->ready, &waiting);
        pthread_cond_init(&r->changed, NULL);
        r->next = rings;
        rings = r;
    }
    r->loader = loader;
    r->slots = allocate(most, sizeof *r->slots);
    r->blocks = allocate(most * layers + 1, sizeof *r->blocks);
    r->size = buffers;
    r->batches = batches;
    r->full = full;
    r->last = r->requested = r->stopped = r->complete = r->needs = 0;
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
    s->batch = *batch;
    if (batch->layers) {
        s->batch.blocks = r->blocks + (s - r->slots) * batch->layers;
        memcpy((void *)s->batch.blocks, batch->blocks, batch->layers * sizeof *batch->blocks);
    }
    s->state = r->requested ? RELEASED : READY;
    r->complete = !r->requested && batch->index + 1 == r->batches;
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&r->ready);
}

/* Whether the loader has to wait: all buffers are in the ring, and nothing else is to do. */
static int is_idle(const hopfeed_ring *r) {
    return !r->stopped && !r->requested && !r->complete && !r->needs && !count(r, RELEASED) && !count(r, EMPTY);
}

int32_t hopfeed_ring_collect(hopfeed_ring *r, hopfeed_hold *holds, int64_t *released, int32_t *grow) {
    pthread_mutex_lock(&mutex);
    while (is_idle(r)) pthread_cond_wait(&r->changed, &mutex);
    *released = 0;
    for (slot *s = r->slots; s < r->slots + r->size; s++) {
        if (s->state != RELEASED) continue;
        s->state = EMPTY;
        holds[(*released)++] = s->batch.hold;
    }
    int32_t wanted = !r->stopped && !r->requested;
    *grow = wanted && r->needs;
    pthread_mutex_unlock(&mutex);
    return wanted;
}

void hopfeed_ring_grow(hopfeed_ring *r, char *full) {
    pthread_mutex_lock(&mutex);
    r->needs = 0;
    r->size += !full;
    r->full = full;
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&r->ready); /* who waits for a batch sees that there will be none */
}

int32_t hopfeed_ring_starve(hopfeed_ring *r, char *full) {
    pthread_mutex_lock(&mutex);
    r->starved = full;
    pthread_cond_signal(&r->ready); /* who waits for a batch sees that there will be none */
    while (!r->stopped && !r->requested && !count(r, RELEASED) && (count(r, READY) || count(r, TAKEN))) pthread_cond_wait(&r->changed, &mutex);
    int32_t more = r->stopped || r->requested || count(r, RELEASED);
    r->starved = NULL;
    pthread_mutex_unlock(&mutex);
    free(full);
    return more;
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
    free(r->full);
    r->slots = NULL;
    r->blocks = NULL;
    r->error = r->full = NULL;
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
        r->complete = r->needs = 0;
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

/* The batches that the caller holds leave the loader no buffer, or no memory. */
static int32_t held_error(const hopfeed_ring *r, const char *full) {
    const hopfeed_batch *oldest = NULL, *newest = NULL;
    for (const slot *s = r->slots; s < r->slots + r->size; s++) {
        if (s->state != TAKEN) continue;
        if (!oldest || s->batch.hold < oldest->hold) oldest = &s->batch;
        if (!newest || s->batch.hold > newest->hold) newest = &s->batch;
    }
    return option_error("all %lld batch buffers are held, the oldest by batch %lld, the newest by batch %lld: %s",
                        (long long)count(r, TAKEN), (long long)oldest->index, (long long)newest->index, full);
}

/* The batch that has been ready longest, or what there is instead, waiting until a time. */
static int32_t next(hopfeed_loader loader, const struct timespec *until, hopfeed_batch *batch) {
    hopfeed_ring *r = find(loader);
    if (!r) return HOPFEED_OPTIONS;
    if (r->status == NO_EPOCH) return option_error("no epoch was begun");
    for (int late = 0;; late = pthread_cond_timedwait(&r->ready, &mutex, until)) {
        if (r->loader != loader) return closed_error(loader);
        int32_t status = take(r, batch);
        if (status != HOPFEED_WAIT) return status;
        int64_t taken = r->complete ? 0 : count(r, TAKEN);
        if (taken == r->size && r->full) return held_error(r, r->full);
        if (taken && r->starved && !count(r, RELEASED)) return held_error(r, r->starved);
        /* The loader wants two buffers, one to fill while another is ready. */
        if (taken && taken + 1 >= r->size && !r->full && !r->needs) {
            r->needs = 1;
            pthread_cond_signal(&r->changed);
        }
        if (late) return status;
    }
}

int32_t hopfeed_next(hopfeed_loader loader, int32_t milliseconds, hopfeed_batch *batch) {
    struct timespec until;
    clock_gettime(WAIT_CLOCK, &until);
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
