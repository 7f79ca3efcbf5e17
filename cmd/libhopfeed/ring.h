/*
 * A ring passes batches from a loader to its caller. It is C, so that a caller who takes and releases
 * batches never enters Go: a thread that does so keeps a processor of Go's for up to 10 ms, in which
 * half as many goroutines gather, on a machine of two.
 *
 * The caller requests epochs, takes batches and releases them (hopfeed_epoch, hopfeed_next,
 * hopfeed_release); the calls below are the loader's. Rings are never freed but used again, so a
 * thread that waits in one is safe.
 */
#ifndef HOPFEED_RING_H
#define HOPFEED_RING_H

#include <stdint.h>

#include "hopfeed.h"

typedef struct hopfeed_ring hopfeed_ring;

/* Makes the ring of a loader with so many buffers, batches an epoch, and blocks a batch. It takes the text
 * full, which says what to do where the caller holds all buffers. NULL: then buffers are added, by
 * hopfeed_ring_grow, until there are most. */
hopfeed_ring *hopfeed_ring_open(hopfeed_loader loader, int64_t buffers, int64_t most, int64_t batches, int64_t layers, char *full);

/* Waits until an epoch is requested, and tells at which batch. 0: the ring was stopped. */
int32_t hopfeed_ring_wait(hopfeed_ring *ring, int64_t *epoch, int64_t *batch);

/* Adds a batch, whose hold it sets, and copies its blocks. There is room for it. */
void hopfeed_ring_put(hopfeed_ring *ring, hopfeed_batch *batch);

/* Sets holds to those that were released since the last call, and *released to how many. While all
 * buffers are in the ring, and the epoch has more batches, it waits for a buffer, or until the caller
 * needs one more, which sets *grow. 0: the epoch is no longer wanted. */
int32_t hopfeed_ring_collect(hopfeed_ring *ring, hopfeed_hold *holds, int64_t *released, int32_t *grow);

/* Answers *grow: there is one more buffer or, where full is a text, there will not be more. */
void hopfeed_ring_grow(hopfeed_ring *ring, char *full);

/* Waits, where the batches in the ring leave no memory for the next, until one is released or the epoch is no longer
 * wanted. It takes the text full, which says what to do where the caller holds all of them. 0: there is none. */
int32_t hopfeed_ring_starve(hopfeed_ring *ring, char *full);

/* Ends the epoch after the batches that are ready, with HOPFEED_END or an error, whose text it takes. */
void hopfeed_ring_end(hopfeed_ring *ring, int32_t status, char *error);

/* Ends waiting in the calls above. */
void hopfeed_ring_stop(hopfeed_ring *ring);

/* Forgets the loader. */
void hopfeed_ring_close(hopfeed_ring *ring);

#endif
