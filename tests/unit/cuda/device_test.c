/* tests/unit/cuda/device_test.c - the host device and kernel bodies against a simple double loop.
 */
#include "cuda/sl_device.h"
#include "cuda/sl_kernel_body.h"
#include "cuda/sl_plan.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/base/sl_proc.h"
#include "tests/support/own_id.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STAGING_BYTES 65536u
#define GUARD_BYTES   64u
#define GUARD         0xa5

static uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void random_fill(unsigned char *at, size_t length, uint64_t *state)
{
    for (size_t i = 0; i < length; i++) {
        at[i] = (unsigned char)random_next(state);
    }
}

/* Device memory of one pool, and values. */
struct bed {
    struct sl_layer *layers;
    uint32_t layer_count;
    uint64_t block_count; /* on the device */
    unsigned char *device, *device_copy;
    size_t device_bytes;
    uint64_t value_bytes;
    uint32_t move_count;
    uint64_t *blocks;
    uint64_t *host_offsets;
    unsigned char *host, *host_copy;
    size_t host_bytes;
};

struct shape {
    uint32_t layer_count;
    uint64_t piece_bytes, piece_growth; /* of layer l: piece + l * growth */
    uint64_t gap_bytes;                 /* stride - piece */
    uint64_t base_skew;                 /* layers start at addresses with this residue */
    uint32_t block_count, move_count;
    bool cross_layer; /* a block's pieces lie one after the other */
    bool in_order;    /* device ids and values ascend */
    bool repeated;    /* device ids may repeat (only read) */
    uint32_t
        fragments; /* runs of a piece; 0: it is one. cross_layer: the layers' runs take turns */
    uint64_t fragment_gap; /* between two runs of a layer */
};

/* Makes a piece of `fragments` runs, a few bytes larger than asked for. */
static void layer_fragment(struct sl_layer *layer, uint32_t fragments, uint64_t gap_bytes)
{
    layer->fragment_bytes = (layer->piece_bytes + fragments - 1) / fragments;
    layer->fragment_stride_bytes = layer->fragment_bytes + gap_bytes;
    layer->piece_bytes = layer->fragment_bytes * fragments;
}

/* Bytes of the device from the first to the last byte of a block. */
static uint64_t layer_span(const struct sl_layer *layer)
{
    uint64_t runs = layer->fragment_bytes == 0 ? 1 : layer->piece_bytes / layer->fragment_bytes;
    return layer->piece_bytes + (runs - 1) * (layer->fragment_stride_bytes - layer->fragment_bytes);
}

static void bed_layers(struct bed *bed, const struct shape *shape)
{
    size_t at = GUARD_BYTES + shape->base_skew;
    uint64_t all_bytes = 0, turn_bytes = shape->fragment_gap;
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        struct sl_layer *layer = &bed->layers[l];
        layer->piece_bytes = shape->piece_bytes + l * shape->piece_growth;
        layer->block_count = shape->block_count;
        if (shape->fragments > 0) {
            layer_fragment(layer, shape->fragments, shape->fragment_gap);
        }
        layer->block_stride_bytes = layer_span(layer) + shape->gap_bytes;
        all_bytes += layer->piece_bytes;
        turn_bytes += layer->fragment_bytes;
    }
    uint64_t block_bytes = shape->fragments > 0 ? shape->fragments * turn_bytes : all_bytes;
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        struct sl_layer *layer = &bed->layers[l];
        layer->base = (unsigned char *)at; /* an offset until the memory exists */
        if (shape->cross_layer) {
            layer->block_stride_bytes = block_bytes + shape->gap_bytes;
            layer->fragment_stride_bytes = shape->fragments > 0 ? turn_bytes : 0;
            at += shape->fragments > 0 ? layer->fragment_bytes : layer->piece_bytes;
        } else {
            at += layer->block_stride_bytes * shape->block_count + GUARD_BYTES;
        }
    }
    bed->value_bytes = all_bytes;
    bed->device_bytes = at + (block_bytes + shape->gap_bytes) * shape->block_count + GUARD_BYTES;
}

static struct bed *bed_make(const struct shape *shape, uint64_t *seed)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    bed->layers = calloc(shape->layer_count, sizeof(*bed->layers));
    bed->layer_count = shape->layer_count;
    bed->block_count = shape->block_count;
    bed->move_count = shape->move_count;
    bed_layers(bed, shape);
    bed->device = aligned_alloc(64, sl_align_up(bed->device_bytes, 64));
    bed->device_copy = malloc(bed->device_bytes);
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        bed->layers[l].base = bed->device + (size_t)(uintptr_t)bed->layers[l].base;
    }
    uint64_t slot_bytes = bed->value_bytes + (shape->in_order ? 0 : 1 + random_next(seed) % 40);
    bed->host_bytes = GUARD_BYTES + slot_bytes * (shape->move_count + 1u) + GUARD_BYTES;
    bed->host = malloc(bed->host_bytes);
    bed->host_copy = malloc(bed->host_bytes);
    bed->blocks = calloc(shape->move_count + 1u, sizeof(*bed->blocks));
    bed->host_offsets = calloc(shape->move_count + 1u, sizeof(*bed->host_offsets));
    /* A random order of the device's blocks: no two moves share one, unless repeated. */
    uint64_t *order = calloc(shape->block_count, sizeof(*order));
    for (uint32_t i = 0; i < shape->block_count; i++) {
        order[i] = i;
    }
    for (uint32_t i = shape->block_count; !shape->in_order && i > 1; i--) {
        uint32_t other = (uint32_t)(random_next(seed) % i);
        uint64_t kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < shape->move_count; i++) {
        bed->blocks[i] = shape->repeated ? random_next(seed) % shape->block_count : order[i];
        bed->host_offsets[i] = GUARD_BYTES + i * slot_bytes;
    }
    free(order);
    random_fill(bed->device, bed->device_bytes, seed);
    memcpy(bed->device_copy, bed->device, bed->device_bytes);
    random_fill(bed->host, bed->host_bytes, seed);
    memcpy(bed->host_copy, bed->host, bed->host_bytes);
    return bed;
}

static void bed_free(struct bed *bed)
{
    free(bed->layers);
    free(bed->device);
    free(bed->device_copy);
    free(bed->host);
    free(bed->host_copy);
    free(bed->blocks);
    free(bed->host_offsets);
    free(bed);
}

/* The plain loop: a copy for each block and layer of [first, end), on copies of both memories. */
static void bed_plain_loop(struct bed *bed, bool to_host, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < bed->move_count; i++) {
        unsigned char *value = bed->host_copy + bed->host_offsets[i];
        for (uint32_t l = 0; l < end; l++) {
            const struct sl_layer *layer = &bed->layers[l];
            if (l < first) {
                value += layer->piece_bytes;
                continue;
            }
            unsigned char *piece = bed->device_copy + (layer->base - bed->device) +
                                   bed->blocks[i] * layer->block_stride_bytes;
            uint64_t run_bytes =
                layer->fragment_bytes == 0 ? layer->piece_bytes : layer->fragment_bytes;
            for (uint64_t at = 0; at < layer->piece_bytes; at += run_bytes) {
                if (to_host) {
                    memcpy(value, piece, run_bytes);
                } else {
                    memcpy(piece, value, run_bytes);
                }
                value += run_bytes;
                piece += layer->fragment_stride_bytes;
            }
        }
    }
}

static void bed_assert_equal(const struct bed *bed, const char *what)
{
    ck_assert_msg(memcmp(bed->device, bed->device_copy, bed->device_bytes) == 0,
                  "%s: device memory differs", what);
    ck_assert_msg(memcmp(bed->host, bed->host_copy, bed->host_bytes) == 0,
                  "%s: host memory differs", what);
}

static uint64_t bed_bytes(const struct bed *bed, uint32_t first, uint32_t end)
{
    uint64_t bytes = 0;
    for (uint32_t l = first; l < end; l++) {
        bytes += bed->layers[l].piece_bytes;
    }
    return bytes;
}

/* ranged: only some of the layers, chosen at random. */
static void move_and_compare(const struct shape *shape, bool to_host, bool digests, bool ranged,
                             uint64_t *seed)
{
    struct sl_device *device = NULL;
    struct sl_error why = {0};
    uint32_t table = 0;
    char what[160];
    struct bed *bed = bed_make(shape, seed);
    struct sl_move *moves = calloc(shape->move_count + 1u, sizeof(*moves));
    uint32_t first = ranged ? (uint32_t)(random_next(seed) % shape->layer_count) : 0;
    uint32_t end = ranged ? first + 1 + (uint32_t)(random_next(seed) % (shape->layer_count - first))
                          : shape->layer_count;
    snprintf(what, sizeof(what),
             "%u layers of %llu + %llu in %u runs, gap %llu, skew %llu, %u of %u blocks, %s",
             shape->layer_count, (unsigned long long)shape->piece_bytes,
             (unsigned long long)shape->piece_growth, shape->fragments,
             (unsigned long long)shape->gap_bytes, (unsigned long long)shape->base_skew,
             shape->move_count, shape->block_count, to_host ? "to host" : "to device");
    ck_assert_int_eq(
        sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = STAGING_BYTES},
                       &device, &why),
        SL_OK);
    ck_assert_msg(device->ops->layers_add(device, bed->layers, bed->layer_count, &table, &why) ==
                      SL_OK,
                  "%s", why.text);
    for (uint32_t i = 0; i < shape->move_count; i++) {
        moves[i] = (struct sl_move){.host = bed->host + bed->host_offsets[i],
                                    .device_block = bed->blocks[i],
                                    .layers_index = table,
                                    .first_layer = first,
                                    .layer_end = ranged ? end : 0};
    }

    sl_err err = device->ops->move(device, moves, shape->move_count, to_host, digests, &why);
    bed_plain_loop(bed, to_host, first, end);

    ck_assert_msg(err == SL_OK, "%s: %s", what, why.text);
    bed_assert_equal(bed, what);
    for (uint32_t i = 0; i < shape->move_count; i++) {
        ck_assert_uint_eq(moves[i].done, 1);
        if (to_host && digests) {
            struct sl_digest want =
                sl_digest_of(bed->host_copy + bed->host_offsets[i] + bed_bytes(bed, 0, first),
                             bed_bytes(bed, first, end));
            ck_assert_msg(sl_digest_equal(moves[i].digest, want), "%s: digest of move %u", what, i);
        }
    }
    for (uint32_t i = 0; i < shape->move_count; i++) { /* what lies in the blocks now */
        moves[i].host = NULL;
        moves[i].digest = (struct sl_digest){0};
    }
    ck_assert(!sl_device_digest_cheap(device)); /* the processor reads every byte */
    ck_assert_int_eq(sl_device_digest_begin(device, moves, shape->move_count, &why), SL_OK);
    ck_assert_uint_eq(device->slices_done, device->slices_begun);
    for (uint32_t i = 0; i < shape->move_count; i++) {
        struct sl_digest want =
            sl_digest_of(bed->host_copy + bed->host_offsets[i] + bed_bytes(bed, 0, first),
                         bed_bytes(bed, first, end));
        ck_assert_uint_eq(moves[i].done, 1);
        ck_assert_msg(sl_digest_equal(moves[i].digest, want), "%s: digest of block %u", what, i);
    }
    bed_assert_equal(bed, what);
    free(moves);
    bed_free(bed);
    sl_device_close(&device);
}

/* Each path of the planner, with values below and above half of the staging. */
static const struct shape shapes[] = {
    {.layer_count = 1, .piece_bytes = 4096, .block_count = 40, .move_count = 40, .in_order = true},
    {.layer_count = 1, .piece_bytes = 4096, .block_count = 40, .move_count = 17},
    {.layer_count = 1,
     .piece_bytes = 777,
     .gap_bytes = 5,
     .base_skew = 3,
     .block_count = 40,
     .move_count = 40},
    {.layer_count = 4,
     .piece_bytes = 1024,
     .cross_layer = true,
     .block_count = 20,
     .move_count = 20,
     .in_order = true},
    {.layer_count = 4,
     .piece_bytes = 1000,
     .piece_growth = 3,
     .cross_layer = true,
     .block_count = 20,
     .move_count = 9},
    {.layer_count = 3, .piece_bytes = 40000, .block_count = 8, .move_count = 8},
    {.layer_count = 3,
     .piece_bytes = 4096,
     .piece_growth = 4096,
     .gap_bytes = 1,
     .block_count = 8,
     .move_count = 8},
    {.layer_count = 61, .piece_bytes = 256, .block_count = 30, .move_count = 30},
    {.layer_count = 80,
     .piece_bytes = 500,
     .block_count = 6,
     .move_count = 6}, /* value over half */
    {.layer_count = 5,
     .piece_bytes = 100,
     .piece_growth = 20000,
     .block_count = 6,
     .move_count = 6}, /* a piece over half */
    {.layer_count = 2, .piece_bytes = 16, .block_count = 700, .move_count = 700}, /* many batches */
    {.layer_count = 2, .piece_bytes = 1, .block_count = 9, .move_count = 9},
    {.layer_count = 2, .piece_bytes = 64, .block_count = 9, .move_count = 0},
    {.layer_count = 2, /* heads that lie side by side */
     .piece_bytes = 65536,
     .fragments = 512,
     .cross_layer = true,
     .block_count = 5,
     .move_count = 5},
    {.layer_count = 1, .piece_bytes = 4096, .fragments = 1, .block_count = 9, .move_count = 9},
    {.layer_count = 1, /* runs without a gap: one run */
     .piece_bytes = 4096,
     .fragments = 8,
     .block_count = 9,
     .move_count = 9},
    {.layer_count = 3,
     .piece_bytes = 4096,
     .piece_growth = 1000,
     .fragments = 7,
     .fragment_gap = 3,
     .base_skew = 5,
     .block_count = 9,
     .move_count = 9},
    {.layer_count = 5,
     .piece_bytes = 100,
     .piece_growth = 20000,
     .fragments = 13,
     .fragment_gap = 40,
     .block_count = 6,
     .move_count = 6},
    {.layer_count = 2,
     .piece_bytes = 48,
     .fragments = 48, /* a byte each */
     .fragment_gap = 2,
     .block_count = 300,
     .move_count = 300},
    /* loads that go past the caches: runs, pieces, fragments, batches */
    {.layer_count = 1, .piece_bytes = 70000, .base_skew = 3, .block_count = 64, .move_count = 64},
    {.layer_count = 3,
     .piece_bytes = 40001,
     .gap_bytes = 5,
     .base_skew = 7,
     .block_count = 48,
     .move_count = 48},
    {.layer_count = 2,
     .piece_bytes = 65536,
     .fragments = 32,
     .fragment_gap = 17,
     .block_count = 40,
     .move_count = 40},
    {.layer_count = 61, .piece_bytes = 300, .block_count = 256, .move_count = 256},
};

START_TEST(planned_paths_equal_the_plain_loop)
    {
        uint64_t seed = (uint64_t)_i;
        for (unsigned mode = 0; mode < 3; mode++) {
            move_and_compare(&shapes[_i], mode != 2, mode == 1, false, &seed);
            move_and_compare(&shapes[_i], mode != 2, mode == 1, true, &seed);
        }
    }
END_TEST

START_TEST(random_shapes_equal_the_plain_loop)
    {
        uint64_t seed = UINT64_C(20261) + (uint64_t)_i;
        for (unsigned round = 0; round < 20; round++) {
            struct shape shape = {
                .layer_count = 1 + (uint32_t)(random_next(&seed) % 9),
                .piece_bytes = 1 + random_next(&seed) % (random_next(&seed) % 3 == 0 ? 20000 : 300),
                .piece_growth = random_next(&seed) % 3 == 0 ? random_next(&seed) % 50 : 0,
                .gap_bytes = random_next(&seed) % 2 == 0 ? 0 : random_next(&seed) % 64,
                .base_skew = random_next(&seed) % 16,
                .block_count = 1 + (uint32_t)(random_next(&seed) % 24),
                .cross_layer = random_next(&seed) % 4 == 0,
                .in_order = random_next(&seed) % 2 == 0,
            };
            bool to_host = random_next(&seed) % 2 == 0;
            shape.move_count = (uint32_t)(random_next(&seed) % (shape.block_count + 1u));
            shape.repeated = to_host && random_next(&seed) % 4 == 0;
            if (random_next(&seed) % 2 == 0) {
                shape.fragments = 1 + (uint32_t)(random_next(&seed) % 40);
                shape.fragment_gap = random_next(&seed) % 3 * (random_next(&seed) % 600);
            }
            move_and_compare(&shape, to_host, random_next(&seed) % 2 == 0,
                             random_next(&seed) % 2 == 0, &seed);
        }
    }
END_TEST

/* ---- kernel bodies ---- */

static const uint64_t worker_counts[] = {1, 7, 1024};

static void run_bodies(const struct shape *shape, uint64_t workers, bool gather, uint64_t *seed)
{
    struct bed *bed = bed_make(shape, seed);
    struct sl_layer_table table;
    struct sl_error why = {0};
    ck_assert_msg(sl_layer_table_init(&table, bed->layers, bed->layer_count, 512, &why) == SL_OK,
                  "%s", why.text);
    /* Values lie one after the other, at the alignment that the shape's skew gives them. */
    unsigned char *values = bed->host + GUARD_BYTES + shape->base_skew % 3;
    for (uint32_t i = 0; i < bed->move_count; i++) {
        bed->host_offsets[i] = (uint64_t)(values - bed->host) + i * bed->value_bytes;
    }
    struct sl_swap swap =
        sl_plan_swap(&table, 0, table.layer_count, bed->blocks, bed->move_count, values);

    for (uint64_t worker = 0; worker < workers; worker++) {
        if (gather) {
            sl_gather_body(&swap, worker, workers);
        } else {
            sl_scatter_body(&swap, worker, workers);
        }
    }
    bed_plain_loop(bed, gather, 0, bed->layer_count);

    bed_assert_equal(bed, gather ? "gather" : "scatter");
    sl_layer_table_fini(&table);
    bed_free(bed);
}

START_TEST(bodies_move_every_byte_at_every_stride)
    {
        /* Strides and pieces of every residue mod 16, layers alike and different. */
        uint64_t seed = 7;
        for (uint64_t residue = 0; residue < 16; residue++) {
            for (uint64_t skew = 0; skew < 16; skew += 5) {
                struct shape shape = {.layer_count = 3,
                                      .piece_bytes = 48 + residue,
                                      .gap_bytes = (residue * 7) % 16,
                                      .base_skew = skew,
                                      .block_count = 11,
                                      .move_count = 9,
                                      .piece_growth = skew == 10 ? 17 : 0};
                run_bodies(&shape, worker_counts[_i], true, &seed);
                run_bodies(&shape, worker_counts[_i], false, &seed);
                shape.fragments = 1 + (uint32_t)residue;
                shape.fragment_gap = skew;
                shape.cross_layer = residue % 3 == 0;
                run_bodies(&shape, worker_counts[_i], true, &seed);
                run_bodies(&shape, worker_counts[_i], false, &seed);
                shape.piece_bytes = 16 * (residue + 1) * (residue + 100); /* whole words */
                shape.fragments = (uint32_t)residue + 1;
                shape.piece_growth = 0;
                shape.fragment_gap = 48;
                run_bodies(&shape, worker_counts[_i], true, &seed);
                run_bodies(&shape, worker_counts[_i], false, &seed);
            }
        }
    }
END_TEST

START_TEST(bodies_accept_zero_blocks_and_repeated_ids)
    {
        uint64_t seed = 8;
        struct shape none = {
            .layer_count = 2, .piece_bytes = 33, .block_count = 4, .move_count = 0};
        struct shape repeated = {.layer_count = 2,
                                 .piece_bytes = 33,
                                 .block_count = 4,
                                 .move_count = 30,
                                 .repeated = true};

        run_bodies(&none, worker_counts[_i], true, &seed);
        run_bodies(&none, worker_counts[_i], false, &seed);
        run_bodies(&repeated, worker_counts[_i], true, &seed);
    }
END_TEST

START_TEST(word_copy_moves_exactly_its_bytes)
    {
        unsigned char from[64], to[64], want[64];
        for (unsigned i = 0; i < sizeof(from); i++) {
            from[i] = (unsigned char)(i + 1);
        }
        for (uint32_t length = 1; length <= SL_WORD_BYTES; length++) {
            for (uint32_t a = 0; a < 16; a++) {
                for (uint32_t b = 0; b < 16; b++) {
                    memset(to, GUARD, sizeof(to));
                    memcpy(want, to, sizeof(to));
                    memcpy(want + b, from + a, length);
                    sl_word_copy(to + b, from + a, length);
                    ck_assert_int_eq(memcmp(to, want, sizeof(to)), 0);
                }
            }
        }
    }
END_TEST

/* ---- plan ---- */

START_TEST(adjacent_blocks_are_merged_where_stride_is_piece)
    {
        unsigned char device[1024], host[1024];
        struct sl_layer layer = {
            .base = device, .block_stride_bytes = 64, .piece_bytes = 64, .block_count = 16};
        struct sl_layer_table table;
        struct sl_move moves[] = {
            {.host = host, .device_block = 3},
            {.host = host + 64, .device_block = 4},
            {.host = host + 128, .device_block = 5},
            {.host = host + 192, .device_block = 7}, /* id jumps */
            {.host = host + 320, .device_block = 8}, /* value jumps */
        };
        ck_assert_int_eq(sl_layer_table_init(&table, &layer, 1, 512, NULL), SL_OK);

        ck_assert_int_eq(table.path, SL_PLAN_RUNS);
        ck_assert_uint_eq(sl_plan_run(&table, moves, 5), 3);
        ck_assert_uint_eq(sl_plan_run(&table, moves, 2), 2);
        ck_assert_uint_eq(sl_plan_run(&table, moves + 3, 2), 1);
        sl_layer_table_fini(&table);

        layer.block_stride_bytes = 80; /* a gap after each block: nothing to merge */
        layer.block_count = 10;
        ck_assert_int_eq(sl_layer_table_init(&table, &layer, 1, 512, NULL), SL_OK);
        ck_assert_uint_eq(sl_plan_run(&table, moves, 5), 1);
        sl_layer_table_fini(&table);
    }
END_TEST

static unsigned char somewhere[64];
static const struct {
    struct sl_layer layer;
    uint32_t count;
} bad_layers[] = {
    {{.base = somewhere, .block_stride_bytes = 16, .piece_bytes = 16, .block_count = 1}, 0},
    {{.base = somewhere, .block_stride_bytes = 16, .piece_bytes = 16, .block_count = 1},
     SL_PLAN_LAYERS_MAX + 1},
    {{.base = NULL, .block_stride_bytes = 16, .piece_bytes = 16, .block_count = 1}, 1},
    {{.base = somewhere, .block_stride_bytes = 16, .piece_bytes = 0, .block_count = 1}, 1},
    {{.base = somewhere, .block_stride_bytes = 16, .piece_bytes = 17, .block_count = 1}, 1},
    {{.base = somewhere, .block_stride_bytes = 16, .piece_bytes = 16, .block_count = 0}, 1},
    {{.base = somewhere, .block_stride_bytes = UINT64_MAX / 2, .piece_bytes = 16, .block_count = 4},
     1},
    {{.base = somewhere, .block_stride_bytes = UINT64_MAX - 8, .piece_bytes = 16, .block_count = 2},
     1},
    {{.base = somewhere, /* 5 does not divide it */
      .block_stride_bytes = 60,
      .piece_bytes = 16,
      .block_count = 1,
      .fragment_bytes = 5,
      .fragment_stride_bytes = 5},
     1},
    {{.base = somewhere, /* runs one over the other */
      .block_stride_bytes = 60,
      .piece_bytes = 16,
      .block_count = 1,
      .fragment_bytes = 4,
      .fragment_stride_bytes = 3},
     1},
    {{.base = somewhere, /* the last ends at 34 */
      .block_stride_bytes = 33,
      .piece_bytes = 16,
      .block_count = 1,
      .fragment_bytes = 4,
      .fragment_stride_bytes = 10},
     1},
    {{.base = somewhere,
      .block_stride_bytes = 33,
      .piece_bytes = 16,
      .block_count = 1,
      .fragment_bytes = 4,
      .fragment_stride_bytes = UINT64_MAX / 3 + 1},
     1},
    {{.base = somewhere, /* a stride of nothing */
      .block_stride_bytes = 16,
      .piece_bytes = 16,
      .block_count = 1,
      .fragment_stride_bytes = 4},
     1},
    {{.base = somewhere, /* too many runs */
      .block_stride_bytes = SL_MIB,
      .piece_bytes = SL_DEVICE_BLOCK_RUNS_MAX + 1,
      .block_count = 1,
      .fragment_bytes = 1,
      .fragment_stride_bytes = 2},
     1},
};

START_TEST(impossible_layers_are_refused)
    {
        struct sl_layer_table table;

        ck_assert_int_eq(
            sl_layer_table_init(&table, &bad_layers[_i].layer, bad_layers[_i].count, 512, NULL),
            SL_ERR_INVALID);
    }
END_TEST

/* ---- device ---- */

static struct sl_device *host_device(void)
{
    struct sl_device *device = NULL;
    const struct sl_device_options options = {
        .name = "host", .staging_bytes = STAGING_BYTES, .runtime_directory = "/tmp"};
    ck_assert_int_eq(sl_device_open(&options, &device, NULL), SL_OK);
    return device;
}

static sl_err file_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                        struct sl_descriptors_part *out, struct sl_error *why)
{
    (void)context;
    (void)first;
    return sl_descriptors_file(ask, out, why);
}

START_TEST(mapping_shares_the_memory_behind_a_descriptor)
    {
        int fd = memfd_create("pool", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(fd, 8192), 0);
        unsigned char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        struct sl_device *device = host_device();
        struct sl_mapping mapping = {0};
        struct sl_error why = {0};
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_SHARED_FD, .pid = (uint32_t)getpid(), .fd = fd};

        ck_assert_msg(device->ops->map(device, &handle, 8192, &mapping, &why) == SL_OK, "%s",
                      why.text);
        own[5000] = 77;

        ck_assert_uint_eq(((unsigned char *)mapping.base)[5000], 77);
        device->ops->unmap(device, &mapping);
        ck_assert_ptr_null(mapping.base);
        munmap(own, 8192);
        close(fd);
        sl_device_close(&device);
    }
END_TEST

START_TEST(mapping_refuses_what_is_not_there)
    {
        int pipes[2], fd = memfd_create("pool", MFD_CLOEXEC);
        ck_assert_int_eq(pipe(pipes), 0);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        struct sl_device *device = host_device();
        struct sl_mapping mapping = {0};
        uint32_t self = (uint32_t)getpid();
        struct {
            struct sl_memory_handle handle;
            uint64_t length_bytes;
            sl_err want;
        } tries[] = {
            {{.kind = SL_MEMORY_SHARED_FD, .pid = self, .fd = fd},
             4097,
             SL_ERR_INVALID}, /* shorter than registered */
            {{.kind = SL_MEMORY_SHARED_FD, .pid = self, .fd = fd}, 0, SL_ERR_INVALID},
            {{.kind = SL_MEMORY_SHARED_FD, .pid = self, .fd = pipes[0]}, 4096, SL_ERR_INVALID},
            {{.kind = SL_MEMORY_SHARED_FD, .pid = self, .fd = -1}, 4096, SL_ERR_INVALID},
            {{.kind = SL_MEMORY_SHARED_FD, .pid = self, .fd = 99999}, 4096, SL_ERR_NOT_FOUND},
            {{.kind = SL_MEMORY_SHARED_FD, .pid = 0x7ffffff0, .fd = fd}, 4096, SL_ERR_NOT_FOUND},
            {{.kind = SL_MEMORY_CUDA_IPC, .pid = self, .fd = fd}, 4096, SL_ERR_UNSUPPORTED},
        };

        for (size_t i = 0; i < SL_COUNT(tries); i++) {
            ck_assert_int_eq(
                device->ops->map(device, &tries[i].handle, tries[i].length_bytes, &mapping, NULL),
                tries[i].want);
            ck_assert_ptr_null(mapping.base);
        }
        close(fd);
        close(pipes[0]);
        close(pipes[1]);
        sl_device_close(&device);
    }
END_TEST

START_TEST(mapping_refuses_memory_of_another_user)
    {
        int fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        if (fchown(fd, 4711, 4711) !=
            0) { /* not root, or root of a namespace that lacks the user */
            close(fd);
            return;
        }
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        struct sl_device *device = host_device();
        struct sl_mapping mapping = {0};
        const struct sl_memory_handle handle = {
            .kind = SL_MEMORY_SHARED_FD, .pid = (uint32_t)getpid(), .fd = fd};

        sl_err got = device->ops->map(device, &handle, 4096, &mapping, NULL);

        ck_assert_int_eq(got, SL_ERR_PERMISSION);
        close(fd);
        sl_device_close(&device);
    }
END_TEST

START_TEST(mapping_refuses_a_process_that_is_another_one_by_now)
    {
        int fd = memfd_create("pool", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        struct sl_device *device = host_device();
        struct sl_mapping mapping = {0};
        const struct sl_proc_id self = own_id();
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_SHARED_FD, .pid = self.pid, .fd = fd, .start_time = self.start_time};

        struct sl_descriptors *server = NULL;
        ck_assert_int_eq(
            sl_descriptors_serve("/tmp", self.start_time, file_give, NULL, &server, NULL), SL_OK);

        sl_err same = device->ops->map(device, &handle, 4096, &mapping, NULL);
        device->ops->unmap(device, &mapping);
        handle.start_time++;
        sl_err other = device->ops->map(device, &handle, 4096, &mapping, NULL);

        ck_assert_int_eq(same, SL_OK);
        ck_assert_int_eq(other, SL_ERR_NOT_FOUND);
        sl_descriptors_stop(&server);
        close(fd);
        sl_device_close(&device);
    }
END_TEST

START_TEST(memory_made_for_others_is_zero_and_shared)
    {
        struct sl_device *device = host_device();
        struct sl_device_memory memory = {.fd = -1};
        struct sl_memory_handle handle;
        struct sl_mapping mine = {0}, theirs = {0};
        struct sl_error why = {0};

        ck_assert_msg(sl_device_memory_create(device, 10000, &memory, &why) == SL_OK, "%s",
                      why.text);
        ck_assert_int_eq(sl_device_memory_export(device, &memory, &handle, &why), SL_OK);

        ck_assert_int_eq(device->ops->map(device, &handle, 10000, &mine, &why), SL_OK);
        ck_assert_int_eq(device->ops->map(device, &handle, 10000, &theirs, &why), SL_OK);
        struct sl_memory_handle other = handle; /* its number became another file's */
        other.inode++;
        struct sl_mapping none = {0};
        ck_assert_int_eq(device->ops->map(device, &other, 10000, &none, &why), SL_ERR_NOT_FOUND);
        ck_assert_ptr_null(none.base);
        ck_assert_uint_eq(((unsigned char *)theirs.base)[9999], 0);
        ((unsigned char *)mine.base)[9999] = 5;
        ck_assert_uint_eq(((unsigned char *)theirs.base)[9999], 5);
        ck_assert_int_ne(ftruncate(memory.fd, 1), 0); /* it cannot be truncated under a mapping */
        sl_device_memory_free(device, &memory);
        sl_device_memory_free(device, &memory);
        ck_assert_uint_eq(((unsigned char *)theirs.base)[9999], 5); /* lives with its mappings */
        ck_assert_int_eq(sl_device_memory_create(device, 0, &memory, &why), SL_ERR_INVALID);
        ck_assert_int_ne(sl_device_memory_create(device, UINT64_MAX, &memory, &why), SL_OK);
        device->ops->unmap(device, &mine);
        device->ops->unmap(device, &theirs);
        sl_device_close(&device);
    }
END_TEST

START_TEST(a_back_end_that_makes_no_memory_says_so)
    {
        static const struct sl_device_ops none = {.name = "none"};
        struct sl_device device = {.ops = &none};
        struct sl_device_memory memory = {.fd = -1};
        struct sl_memory_handle handle;
        struct sl_error why = {0};

        ck_assert_int_eq(sl_device_memory_create(&device, 1, &memory, &why), SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why.text, "none"));
        ck_assert_int_eq(sl_device_memory_export(&device, &memory, &handle, &why),
                         SL_ERR_UNSUPPORTED);
        sl_device_memory_free(&device, &memory);
    }
END_TEST

START_TEST(moves_outside_the_table_touch_nothing)
    {
        static unsigned char memory[256], host[256];
        struct sl_device *device = host_device();
        struct sl_layer layer = {
            .base = memory, .block_stride_bytes = 64, .piece_bytes = 64, .block_count = 4};
        uint32_t table = 0;
        ck_assert_int_eq(device->ops->layers_add(device, &layer, 1, &table, NULL), SL_OK);
        memset(memory, 1, sizeof(memory));
        struct sl_move moves[] = {{.host = host, .device_block = 0, .layers_index = table},
                                  {.host = host + 64, .device_block = 4, .layers_index = table}};

        ck_assert_int_eq(device->ops->move(device, moves, 2, true, false, NULL), SL_ERR_INVALID);
        ck_assert_uint_eq(moves[0].done, 0);
        ck_assert_uint_eq(host[0], 0);
        moves[1] = (struct sl_move){.host = host, .layers_index = table, .layer_end = 2};
        ck_assert_int_eq(device->ops->move(device, moves, 2, true, false, NULL), SL_ERR_INVALID);
        moves[1] =
            (struct sl_move){.host = host, .layers_index = table, .first_layer = 1, .layer_end = 1};
        ck_assert_int_eq(device->ops->move(device, moves, 2, true, false, NULL), SL_ERR_INVALID);
        ck_assert_uint_eq(host[0], 0);

        device->ops->layers_remove(device, table);
        ck_assert_int_eq(device->ops->move(device, moves, 1, true, false, NULL), SL_ERR_INVALID);
        sl_device_close(&device);
    }
END_TEST

START_TEST(removed_tables_make_room)
    {
        struct sl_device *device = host_device();
        struct sl_layer layer = {
            .base = somewhere, .block_stride_bytes = 16, .piece_bytes = 16, .block_count = 1};
        uint32_t a = 0, b = 0, c = 0;
        ck_assert_int_eq(device->ops->layers_add(device, &layer, 1, &a, NULL), SL_OK);
        ck_assert_int_eq(device->ops->layers_add(device, &layer, 1, &b, NULL), SL_OK);

        device->ops->layers_remove(device, a);
        ck_assert_int_eq(device->ops->layers_add(device, &layer, 1, &c, NULL), SL_OK);

        ck_assert_uint_ne(a, b);
        ck_assert_uint_eq(a, c);
        sl_device_close(&device);
    }
END_TEST

START_TEST(back_ends_that_cannot_run_say_why)
    {
        struct sl_device *device = NULL;
        struct sl_error why = {0};

        sl_err err = sl_device_open(
            &(struct sl_device_options){.name = "cuda", .staging_bytes = STAGING_BYTES}, &device,
            &why);
        ck_assert_int_eq(err, SL_ERR_UNSUPPORTED);
        ck_assert_ptr_null(device);
        ck_assert_msg(strstr(why.text, "device cuda: ") == why.text && strlen(why.text) > 20, "%s",
                      why.text);
        ck_assert_int_eq(sl_device_open(&(struct sl_device_options){.name = "tpu",
                                                                    .staging_bytes = STAGING_BYTES},
                                        &device, &why),
                         SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(
            sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = 100},
                           &device, &why),
            SL_ERR_INVALID);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *cases = tcase_create("device");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, planned_paths_equal_the_plain_loop, 0, SL_COUNT(shapes));
    tcase_add_loop_test(cases, random_shapes_equal_the_plain_loop, 0, 10);
    tcase_add_loop_test(cases, bodies_move_every_byte_at_every_stride, 0, SL_COUNT(worker_counts));
    tcase_add_loop_test(cases, bodies_accept_zero_blocks_and_repeated_ids, 0,
                        SL_COUNT(worker_counts));
    tcase_add_test(cases, word_copy_moves_exactly_its_bytes);
    tcase_add_test(cases, adjacent_blocks_are_merged_where_stride_is_piece);
    tcase_add_loop_test(cases, impossible_layers_are_refused, 0, SL_COUNT(bad_layers));
    tcase_add_test(cases, mapping_shares_the_memory_behind_a_descriptor);
    tcase_add_test(cases, mapping_refuses_what_is_not_there);
    tcase_add_test(cases, mapping_refuses_memory_of_another_user);
    tcase_add_test(cases, mapping_refuses_a_process_that_is_another_one_by_now);
    tcase_add_test(cases, memory_made_for_others_is_zero_and_shared);
    tcase_add_test(cases, a_back_end_that_makes_no_memory_says_so);
    tcase_add_test(cases, moves_outside_the_table_touch_nothing);
    tcase_add_test(cases, removed_tables_make_room);
    tcase_add_test(cases, back_ends_that_cannot_run_say_why);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
