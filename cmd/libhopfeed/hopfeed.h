/*
 * Hopfeed as a C library: loaders of hop stores and of sampled graphs, and the work that makes stores.
 *
 * All calls may be made from any thread; calls for one loader one at a time, but for hopfeed_release
 * and hopfeed_close, which may be called beside them. No call may be made in a process that was
 * forked after the library was loaded: the threads of the library are not there, and the call would
 * wait for ever. Load the library in the child instead.
 *
 * Text is UTF-8 and ends with a zero byte. Text that a call returns through a char ** belongs to the
 * caller, who gives it to hopfeed_free. Options and results are JSON objects; fields of options that
 * are left out have their default, and unknown ones are an error. Later versions with the same
 * HOPFEED_API only add: fields, verbs, calls.
 */
#ifndef HOPFEED_H
#define HOPFEED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOPFEED_API 4

typedef const char *hopfeed_text;
typedef uint64_t hopfeed_task;   /* work that runs */
typedef uint64_t hopfeed_loader; /* an open store or graph, with its buffers */
typedef uint64_t hopfeed_hold;   /* of a batch */

/* What calls return: HOPFEED_DONE, one of the two below zero, or an error, which
 * hopfeed_last_error describes. The errors are the exit statuses of the command hopfeed. */
enum {
    HOPFEED_DONE = 0,
    HOPFEED_END = -1,  /* the epoch has no more batches */
    HOPFEED_WAIT = -2, /* nothing yet: the time is over, call again */
    HOPFEED_FAILED = 1,
    HOPFEED_OPTIONS = 2,      /* options that are unknown or contradict each other or the data */
    HOPFEED_CORRUPT = 3,      /* corrupt or invalid data */
    HOPFEED_DOES_NOT_FIT = 4, /* into memory or on disk */
    HOPFEED_NOT_FOUND = 5,    /* a file or folder; of the command 1 */
    HOPFEED_INTERRUPTED = 130
};

/* Element types. */
enum {
    HOPFEED_FLOAT32 = 1,
    HOPFEED_FLOAT16 = 2,
    HOPFEED_BFLOAT16 = 3,
    HOPFEED_INT32 = 4,
    HOPFEED_INT8 = 7
};

/*
 * A layer of a sampled batch: a bipartite graph, whose edges are sorted by destination. Sources are
 * known by local numbers, and the destinations are the first of the sources. The edges of destination
 * d are those from offsets[d] to offsets[d+1] - 1: edge e comes from source indices[e] and has
 * weights[e], by which the sum over edges of weight * feature estimates that over all in-neighbours.
 * Blocks of a typed graph, whose nodes are numbered type after type, have rows instead of destinations in
 * offsets: relation after relation, the destinations of its type.
 */
typedef struct {
    int64_t destinations, sources, edges;
    const int32_t *offsets; /* [destinations+1]; null if there are none */
    const int32_t *indices; /* [edges] */
    const float *weights;   /* [edges]; of a subgraph, those of the graph */
    const int64_t *edge_ids; /* [edges], in the graph, -1 of an added self-loop; null unless asked for */
} hopfeed_block;

/*
 * A batch, in memory of the loader, which must not be written to unless the loader was opened with
 * "owned". It is valid until its hold is released, or the loader closed. Element (r, m, f) of the features is at
 * features + r*row_bytes + m*matrix_bytes + f*(size of an element). All pointers are null if there
 * are no rows.
 */
typedef struct {
    hopfeed_hold hold;
    int64_t index;       /* within the epoch */
    int64_t rows;        /* of this rank */
    int64_t global_rows; /* of all ranks */
    const void *features;
    int64_t matrices, columns, row_bytes, matrix_bytes;
    /* [rows, label_columns]: a class (int32), several labels (int8 0 and 1), in both of which -1 is
     * unlabelled, or values (float32), where NaN is. */
    const void *labels;
    int64_t label_columns;
    const uint32_t *row_numbers; /* [rows], in the store; null unless asked for */
    const uint32_t *nodes;       /* [rows], in the graph; null unless asked for */
    int32_t dtype, label_dtype;
    int64_t feature_rows; /* rows; of a sampled batch, its inputs */

    /* Of a sampled batch, whose rows are its seeds; else 0 and null. Sources of block 0 are the rows of
     * features, sources of each later block the destinations of the one before it, and destinations of
     * the last the rows of the batch, which are the first rows of features too. */
    int64_t layers;
    const hopfeed_block *blocks; /* [layers], in the order in which a model computes them */
    const uint32_t *inputs;      /* [feature_rows], in the graph */
    const float *row_weights;    /* [rows], which multiply the losses of rows; null: ones */
    const uint32_t *trees;       /* [feature_rows]: the seed that each was reached from; null unless "disjoint" */

    /* With "links" as seeds, whose number is rows: their numbers, and the local ids of the sources of
     * links and negative pairs, then of their destinations. Triplets have one source a link. */
    const uint32_t *links; /* [rows] */
    int64_t ends;
    const uint32_t *link_ends; /* [ends] */
} hopfeed_batch;

/* The HOPFEED_API of the library that is loaded. */
int32_t hopfeed_api(void);

/* Runs a line of the command hopfeed, given as its words without "hopfeed", as the program does: with the streams of the
 * process, and interrupted by its signals. It returns the exit status. */
int32_t hopfeed_main(int32_t count, hopfeed_text *words);

void hopfeed_free(void *text);

/* What went wrong in the last call of this thread that returned an error. It is valid until the next
 * call of the thread. */
hopfeed_text hopfeed_last_error(void);

/*
 * Work that may take long. hopfeed_start begins it and returns at once; hopfeed_wait waits for it
 * for some milliseconds, and sets *result to the result (NULL: there is none) or, if it returns HOPFEED_WAIT, to the
 * progress: {"tasks": [{"id", "label", "done", "total", "bytes"}], "notes": [text]}: tasks that
 * run or have ended since the last call, and notes since then. What is left of them at the end comes before the
 * result. hopfeed_end stops it, if it still runs, waits for that, and forgets it; each task takes one.
 *
 * Verbs, and their options:
 *   "environment" variables: {name: value, or null to unset it}, as the process has changed them since it began.
 *   "command"    args: a line of the command hopfeed, as a list of its words, without "hopfeed". The
 *                result is what --json prints; an error may have one too, such as the damage that
 *                verify has found.
 *   "extents"    path, operator and hop, or column: where the rows of a matrix lie. The result has columns, dtype, and
 *                spans: [{file, first_row, chunks, chunk_rows, offset, stride}], in the order of rows.
 *   "rows"       path: the table of rows. The result has, in base64 and little-endian, nodes (uint32;
 *                not of a graph), labels (int32, or int8 or float32 of several) and splits (uint8);
 *                with "ids": true, instead, ids, the texts by which the input knew the rows.
 *   "topology"   path, and of a typed graph relation ({source, name, destination}): where the edges lie, by
 *                destination. The result has nodes, sources and edges, folder, file, offsets_at ([nodes+1] int64)
 *                and neighbors_at ([edges] uint32) in bytes, weights_file ("": none) and weights_at (float32).
 *   "plan"       as "open".
 *   "open"       store; region ("train"; "all") of split (the one that the store is laid out by) or
 *                node_list, the nodes whose rows are loaded, from memory alone; matrices ([[operator, hop]]; all), batch_rows, world (1)
 *                and rank: ranks share each batch; placement, shuffle ("auto", "rr", "chunk" or, in
 *                order, "none"), seed, stored (features keep the stored type), nodes and row_numbers
 *                (batches have them), buffers, memory (such as "8GiB"; what the machine has), processes
 *                (that share it), threads, owned (false; true: batches may be written to, and are never
 *                views of the input; buffers are added while the caller holds all but one, up to 4096,
 *                as far as memory allows).
 *                The result has "loader", which the caller closes unless hopfeed_wait did not
 *                return it, and what the loader brings and why. Like those of "rows" and "extents", it has
 *                rows_fingerprint, which tells the data from those of a graph or store that replaces them.
 *   "sample"     graph; part ("train", or "valid", "test", "rest", "all") of split (0), or nodes (a list),
 *                which are the seeds; sampler ("neighbor"), fanout ([15, 10, 5]: the first is nearest
 *                the seeds, -1 is all), aggregation, replace, by_weight, bias and debias, as `hopfeed
 *                sample` has them; cache (POLICY:SIZE), batch_rows, world (1) and rank, placement of the
 *                features ("auto", "host" or "storage"), mapped (topology), shuffle ("rr" or "none"),
 *                seed, buffers, memory, processes, threads, owned; drop_last (a short last batch), no_features,
 *                edge_ids (blocks have them), subgraph ("directional" or "induced": one block, whose
 *                destinations are all nodes), disjoint (each seed has nodes of its own), and links, the seeds
 *                instead of nodes: {sources, destinations (uint32 in base64), negatives ("binary" or
 *                "triplet"), ratio (of negative pairs to links), hide (links are not in their own batch)};
 *                time_column (of edges or nodes: a disjoint seed reaches none later than its own of times,
 *                int64 in base64, also of links), newest (the latest edges are chosen).
 *                The result is as that of "open".
 */
int32_t hopfeed_start(hopfeed_text verb, hopfeed_text options, hopfeed_task *task);
int32_t hopfeed_wait(hopfeed_task task, int32_t milliseconds, char **result);
int32_t hopfeed_end(hopfeed_task task);

/*
 * hopfeed_epoch begins an epoch at one of its batches, and ends the one that runs, if any. The order
 * depends on seed, epoch, shuffle and batch rows alone; so with them, epoch and next batch are all
 * the state that there is to save, and ranks, placement and buffers may differ afterwards. Ranks
 * sample with random numbers of their own: the rows of a batch are the same for any world, but not
 * what is sampled for them.
 */
int32_t hopfeed_epoch(hopfeed_loader loader, int64_t epoch, int64_t batch);

/*
 * hopfeed_next waits for the next batch for some milliseconds. First it releases the hold in *batch,
 * if that is not 0, and sets it to 0. So an interrupted caller who calls it again loses no batch. While
 * all buffers, or all memory for batches, are held, and the epoch has more batches, it returns
 * HOPFEED_OPTIONS, and goes on when one is released. After any other error the epoch is over.
 */
int32_t hopfeed_next(hopfeed_loader loader, int32_t milliseconds, hopfeed_batch *batch);

/* hopfeed_release does nothing if the hold was released before, or the loader closed. */
int32_t hopfeed_release(hopfeed_hold hold);

/* Counters and times of the epochs that have ended, and by which paths files were read. */
int32_t hopfeed_stats(hopfeed_loader loader, char **result);

/* Closes the loader. The memory of all its batches is gone. A call of hopfeed_next that waits
 * meanwhile returns HOPFEED_OPTIONS. */
int32_t hopfeed_close(hopfeed_loader loader);

#ifdef __cplusplus
}
#endif

#endif
