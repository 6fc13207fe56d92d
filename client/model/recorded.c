/* client/model/recorded.c - events of a recording become requests.
 *
 * Events come one block at a time: the uses of a load from the end of its chain to the beginning, as
 * engines note them, the stores of an op in any order. A run is what follows each other and hangs
 * together. A run of uses begins a request; a run of stores goes on with the request that ends where
 * it begins, when that was used just before. */
#include "client/model/recorded.h"
#include "runtime/sl_array.h"
#include "runtime/sl_base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A store goes on with a request that began so long ago at most. */
#define GOES_ON_US   UINT64_C(60000000)
#define DEPTH_MAX    1048576u
#define BLOCKS_MAX   (UINT32_C(1) << 30)
#define TABLE_FIRST  1024u
#define NO_REQUEST   UINT32_MAX
#define REQUESTS_MAX 100000000u
/* Of a value's record on a disk, without keys (actors/tierer/segment_format.h); and keys where a recording
 * does not tell of them. */
#define RECORD_BYTES      64u
#define DEFAULT_KEY_BYTES 106u

struct block {
    uint64_t name, bytes;
    uint32_t disk_heads; /* bytes beside its values on a disk */
    uint32_t parent;     /* its number; 0: none */
    uint32_t depth;      /* 0: not counted yet */
    uint32_t id;         /* of the model: another one after each removal */
    uint32_t tokens;
    uint32_t open; /* the newest request that ends with it and may go on */
    bool known;    /* it is, or was, there */
    bool gone, fetched;
};
struct piece { /* of a request, in refs */
    uint64_t first;
    uint32_t count, next; /* next: 0: none */
};
struct request {
    uint64_t at_us;
    uint32_t first_piece, last_piece, last_block, before;
    uint32_t below; /* the request that was open at its end before it */
    uint8_t hint;
    bool uncounted;
};
struct builder {
    struct model_recorded *out;
    struct block *blocks; /* number 0 is none */
    uint32_t *table;      /* numbers by name */
    uint32_t *refs, *run;
    struct piece *pieces;
    struct request *requests;
    uint32_t block_count, block_room, table_size, id_count;
    uint32_t run_count, run_room, piece_count, piece_room, request_count, request_room;
    uint64_t ref_count, ref_room, run_at_us, run_fetched;
    enum sl_recording_kind run_kind;
    uint8_t run_hint;
    sl_err err;
};

/* ---- blocks ---- */

static uint32_t *table_place(const struct builder *builder, uint64_t name)
{
    uint32_t at = (uint32_t)(name ^ name >> 32) & (builder->table_size - 1);
    while (builder->table[at] != 0 && builder->blocks[builder->table[at]].name != name) {
        at = (at + 1) & (builder->table_size - 1);
    }
    return &builder->table[at];
}

static bool table_grow(struct builder *builder)
{
    uint32_t size = builder->table_size == 0 ? TABLE_FIRST : builder->table_size * 2;
    uint32_t *fresh = calloc(size, sizeof(*fresh));
    if (fresh == NULL) {
        return false;
    }
    free(builder->table);
    builder->table = fresh;
    builder->table_size = size;
    for (uint32_t i = 1; i < builder->block_count; i++) {
        *table_place(builder, builder->blocks[i].name) = i;
    }
    return true;
}

/* Its number; 0: none has the name 0, or there is no memory. */
static uint32_t block_of(struct builder *builder, uint64_t name)
{
    if (name == 0) {
        return 0;
    }
    if (builder->block_count >= BLOCKS_MAX ||
        (builder->block_count + 1 > builder->table_size / 2 && !table_grow(builder)) ||
        !SL_ARRAY_ROOM(builder->blocks, builder->block_room, builder->block_count + 1)) {
        builder->err = builder->block_count >= BLOCKS_MAX ? SL_ERR_LIMIT : SL_ERR_NO_MEMORY;
        return 0;
    }
    uint32_t *place = table_place(builder, name);
    if (*place == 0) {
        *place = builder->block_count++;
        builder->blocks[*place] =
            (struct block){.name = name, .id = builder->id_count++, .open = NO_REQUEST};
    }
    return *place;
}

/* How many blocks are before it, as far as that is known; of use only beside each other. */
static uint32_t depth_of(struct builder *builder, uint32_t number)
{
    struct block *blocks = builder->blocks;
    uint32_t steps = 0;
    uint32_t at = number;
    while (at != 0 && blocks[at].depth == 0 && steps < DEPTH_MAX) {
        at = blocks[at].parent;
        steps++;
    }
    uint32_t depth = steps + (at != 0 ? blocks[at].depth : 0);
    for (at = number; steps > 0 && at != 0 && blocks[at].depth == 0; at = blocks[at].parent) {
        blocks[at].depth = depth--;
    }
    return blocks[number].depth;
}

/* ---- requests ---- */

static uint32_t piece_add(struct builder *builder, const uint32_t *blocks, uint32_t count)
{
    if (!SL_ARRAY_ROOM(builder->refs, builder->ref_room, builder->ref_count + count) ||
        !SL_ARRAY_ROOM(builder->pieces, builder->piece_room, builder->piece_count + 1)) {
        builder->err = SL_ERR_NO_MEMORY;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        builder->refs[builder->ref_count + i] = builder->blocks[blocks[i]].id;
    }
    builder->pieces[builder->piece_count] =
        (struct piece){.first = builder->ref_count, .count = count};
    builder->ref_count += count;
    return builder->piece_count++;
}

/* Of these blocks, the deepest last. Gives its number; NO_REQUEST: no memory. */
static uint32_t request_add(struct builder *builder, const uint32_t *blocks, uint32_t count,
                            bool uncounted)
{
    uint32_t piece = piece_add(builder, blocks, count);
    if (piece == 0 || builder->request_count >= REQUESTS_MAX ||
        !SL_ARRAY_ROOM(builder->requests, builder->request_room, builder->request_count + 1)) {
        builder->err = builder->err != SL_OK                    ? builder->err
                       : builder->request_count >= REQUESTS_MAX ? SL_ERR_LIMIT
                                                                : SL_ERR_NO_MEMORY;
        return NO_REQUEST;
    }
    uint32_t parent = builder->blocks[blocks[0]].parent;
    builder->requests[builder->request_count] =
        (struct request){.at_us = builder->run_at_us,
                         .first_piece = piece,
                         .last_piece = piece,
                         .last_block = blocks[count - 1],
                         .before = parent != 0 ? builder->blocks[parent].id : MODEL_NO_BLOCK,
                         .below = NO_REQUEST,
                         .hint = builder->run_hint,
                         .uncounted = uncounted};
    return builder->request_count++;
}

/* It may be gone on with where it ends. */
static void request_open(struct builder *builder, uint32_t number)
{
    struct request *request = &builder->requests[number];
    struct block *last = &builder->blocks[request->last_block];
    request->below = last->open;
    last->open = number;
}

/* The newest request that ends with the block and is young enough, which then ends there no more. */
static uint32_t request_take(struct builder *builder, uint32_t block)
{
    uint32_t number = block != 0 ? builder->blocks[block].open : NO_REQUEST;
    if (number == NO_REQUEST || builder->run_at_us > builder->requests[number].at_us + GOES_ON_US) {
        return NO_REQUEST;
    }
    builder->blocks[block].open = builder->requests[number].below;
    return number;
}

/* ---- runs ---- */

static int depth_compare(const void *left, const void *right, void *context)
{
    struct builder *builder = context;
    uint32_t a = builder->blocks[*(const uint32_t *)left].depth;
    uint32_t b = builder->blocks[*(const uint32_t *)right].depth;
    return a < b ? -1 : a > b;
}

static void run_sort(struct builder *builder)
{
    bool sorted = true;
    for (uint32_t i = 0; i < builder->run_count; i++) {
        uint32_t depth = depth_of(builder, builder->run[i]);
        sorted = sorted && (i == 0 || builder->blocks[builder->run[i - 1]].depth <= depth);
    }
    if (!sorted) {
        qsort_r(builder->run, builder->run_count, sizeof(builder->run[0]), depth_compare, builder);
    }
}

/* What was there before the recording began comes in front, and is not counted. */
static void run_loaded(struct builder *builder)
{
    uint32_t unknown = 0; /* up to the last one */
    for (uint32_t i = 0; i < builder->run_count; i++) {
        struct block *block = &builder->blocks[builder->run[i]];
        if (!block->known) {
            unknown = i + 1;
            builder->out->before_count++;
        }
        block->known = true;
    }
    if (unknown > 0) {
        (void)request_add(builder, builder->run, unknown, true);
    }
    uint32_t number = request_add(builder, builder->run, builder->run_count, false);
    if (number != NO_REQUEST) {
        request_open(builder, number);
    }
    builder->out->load_count += builder->run_count;
    builder->out->disk_count += builder->run_fetched;
}

static void run_stored(struct builder *builder)
{
    uint32_t parent = builder->blocks[builder->run[0]].parent;
    uint32_t number = request_take(builder, parent);
    for (uint32_t i = 0; i < builder->run_count; i++) {
        builder->blocks[builder->run[i]].known = true;
    }
    if (number == NO_REQUEST) {
        number = request_add(builder, builder->run, builder->run_count, false);
    } else {
        uint32_t piece = piece_add(builder, builder->run, builder->run_count);
        struct request *request = &builder->requests[number];
        builder->pieces[request->last_piece].next = piece;
        request->last_piece = piece != 0 ? piece : request->last_piece;
        request->last_block = builder->run[builder->run_count - 1];
        request->hint = builder->run_hint != 0 ? builder->run_hint : request->hint;
    }
    if (number != NO_REQUEST) {
        request_open(builder, number);
    }
    builder->out->store_count += builder->run_count;
}

static void run_end(struct builder *builder)
{
    if (builder->run_count > 0) {
        run_sort(builder);
        if (builder->run_kind == SL_RECORDING_LOAD) {
            run_loaded(builder);
        } else {
            run_stored(builder);
        }
    }
    builder->run_count = 0;
    builder->run_fetched = 0;
    builder->run_hint = 0;
}

static bool run_has_on(const struct builder *builder, const struct sl_recording_event *event,
                       uint32_t number)
{
    if (builder->run_count == 0 || builder->run_kind != event->kind) {
        return false;
    }
    uint32_t last = builder->run[builder->run_count - 1];
    bool before = builder->blocks[last].parent == number;
    bool behind = builder->blocks[number].parent == last;
    if (number == last || event->at_us > builder->run_at_us + GOES_ON_US) {
        return false;
    }
    return before || (event->kind == SL_RECORDING_STORE && (behind || !event->new_op));
}

/* ---- events ---- */

/* A tierer writes what names a value in front of it, and once more at its segment's end. */
static uint64_t heads_of(const struct sl_recording_event *event)
{
    uint64_t part_count = event->part_count != 0 ? event->part_count : 1;
    uint64_t key_bytes = event->part_count != 0 ? event->key_bytes : DEFAULT_KEY_BYTES;
    return part_count * 2 * sl_align_up(RECORD_BYTES + key_bytes, 8);
}

static void block_learn(struct builder *builder, uint32_t number,
                        const struct sl_recording_event *event)
{
    uint32_t parent = block_of(builder, event->parent);
    struct block *block = &builder->blocks[number];
    if (block->parent == 0 && parent != number) {
        block->parent = parent;
    }
    if (event->bytes != 0) {
        block->bytes = event->bytes;
        block->disk_heads = (uint32_t)SL_MIN(heads_of(event), UINT64_C(1) << 30);
    }
    block->tokens =
        event->tokens != 0 ? (uint32_t)SL_MIN(event->tokens, UINT64_C(65536)) : block->tokens;
    if (builder->out->block_tokens == 0) {
        builder->out->block_tokens = block->tokens;
    }
}

static void block_event(struct builder *builder, const struct sl_recording_event *event,
                        uint32_t number)
{
    block_learn(builder, number, event);
    struct block *block = &builder->blocks[number];
    if (event->kind == SL_RECORDING_FETCH) {
        block->fetched = true;
        return;
    }
    if (!run_has_on(builder, event, number)) {
        run_end(builder);
        builder->run_kind = event->kind;
        builder->run_at_us = event->at_us;
    }
    if (event->kind == SL_RECORDING_STORE && block->gone) { /* to the model it is another one */
        block->id = builder->id_count++;
        block->gone = false;
    }
    if (!SL_ARRAY_ROOM(builder->run, builder->run_room, builder->run_count + 1)) {
        builder->err = SL_ERR_NO_MEMORY;
        return;
    }
    builder->run[builder->run_count++] = number;
    builder->run_hint = event->hint != 0 ? event->hint : builder->run_hint;
    builder->run_fetched += event->kind == SL_RECORDING_LOAD && block->fetched;
    block->fetched = false;
}

static bool event_take(void *context, const struct sl_recording_event *event)
{
    struct builder *builder = context;
    struct model_recorded *out = builder->out;
    uint32_t number = 0;
    out->span_us = SL_MAX(out->span_us, event->at_us);
    switch (event->kind) {
    case SL_RECORDING_LOAD:
    case SL_RECORDING_STORE:
    case SL_RECORDING_FETCH:
        number = block_of(builder, event->name);
        if (number != 0) {
            block_event(builder, event, number);
        }
        break;
    case SL_RECORDING_GONE:
        run_end(builder);
        number = block_of(builder, event->name);
        out->gone_count +=
            number != 0 && builder->blocks[number].known && !builder->blocks[number].gone;
        builder->blocks[number].gone = true;
        break;
    case SL_RECORDING_LOST:
        out->lost_count += event->count;
        break;
    case SL_RECORDING_AGAIN:
        out->restart_count++;
        break;
    case SL_RECORDING_FULL:
        out->full = true;
        break;
    default: /* of a later minor version */
        break;
    }
    return builder->err == SL_OK;
}

/* ---- the whole ---- */

static sl_err flatten(struct builder *builder)
{
    struct model_recorded *out = builder->out;
    struct replay_trace *trace = &out->trace;
    uint64_t count = builder->request_count;
    uint32_t *tokens = calloc(builder->id_count + (size_t)1, sizeof(*tokens));
    trace->requests = calloc(count + 1, sizeof(*trace->requests));
    trace->ids = malloc((builder->ref_count + 1) * sizeof(*trace->ids));
    out->said = calloc(count + 1, 1);
    out->uncounted = calloc(count + 1, 1);
    out->before = calloc(count + 1, sizeof(*out->before));
    out->block_bytes = calloc(builder->id_count + (size_t)1, sizeof(*out->block_bytes));
    out->disk_bytes = calloc(builder->id_count + (size_t)1, sizeof(*out->disk_bytes));
    if (tokens == NULL || trace->requests == NULL || trace->ids == NULL || out->said == NULL ||
        out->uncounted == NULL || out->before == NULL || out->block_bytes == NULL ||
        out->disk_bytes == NULL) {
        free(tokens);
        return SL_ERR_NO_MEMORY;
    }
    uint64_t known_bytes = 0;
    uint64_t known_count = 0;
    for (uint32_t i = 1; i < builder->block_count; i++) {
        known_bytes += builder->blocks[i].bytes;
        known_count += builder->blocks[i].bytes > 0;
    }
    uint64_t mean = known_count > 0 ? SL_MAX(known_bytes / known_count, UINT64_C(1)) : 1;
    for (uint32_t id = 0; id < builder->id_count; id++) {
        out->disk_bytes[id] = mean;
        out->block_bytes[id] = mean; /* of those that were removed: their block has another now */
    }
    for (uint32_t i = 1; i < builder->block_count; i++) {
        const struct block *block = &builder->blocks[i];
        out->block_bytes[block->id] = block->bytes > 0 ? block->bytes : mean;
        out->disk_bytes[block->id] = out->block_bytes[block->id] + block->disk_heads;
        tokens[block->id] = block->tokens;
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct request *from = &builder->requests[i];
        struct replay_request *to = &trace->requests[i];
        *to = (struct replay_request){.timestamp_ms = from->at_us / 1000,
                                      .first_id = trace->id_count};
        for (uint32_t at = from->first_piece; at != 0; at = builder->pieces[at].next) {
            const struct piece *piece = &builder->pieces[at];
            memcpy(&trace->ids[trace->id_count], &builder->refs[piece->first],
                   piece->count * sizeof(*trace->ids));
            for (uint32_t k = 0; k < piece->count; k++) {
                to->input_length += tokens[builder->refs[piece->first + k]];
            }
            to->id_count += piece->count;
            trace->id_count += piece->count;
        }
        trace->blocks_max = SL_MAX(trace->blocks_max, to->id_count);
        out->said[i] = from->hint;
        out->uncounted[i] = from->uncounted;
        out->before[i] = from->before;
    }
    trace->request_count = count;
    out->block_count = builder->id_count;
    free(tokens);
    return SL_OK;
}

static sl_err builder_begin(struct builder *builder)
{
    if (!SL_ARRAY_ROOM(builder->blocks, builder->block_room, 1) ||
        !SL_ARRAY_ROOM(builder->pieces, builder->piece_room, 1) || !table_grow(builder)) {
        return SL_ERR_NO_MEMORY;
    }
    builder->blocks[0] = (struct block){.open = NO_REQUEST}; /* none */
    builder->block_count = 1;
    builder->piece_count = 1;
    return SL_OK;
}

static void builder_end(struct builder *builder)
{
    free(builder->blocks);
    free(builder->table);
    free(builder->refs);
    free(builder->run);
    free(builder->pieces);
    free(builder->requests);
}

sl_err model_recorded_read(const char *path, struct model_recorded *out, struct sl_error *why)
{
    struct builder builder = {.out = out};
    *out = (struct model_recorded){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? sl_fail(why, SL_ERR_NOT_FOUND, "there is no recording '%s'", path)
                               : sl_fail_os(why, errno, "open '%s'", path);
    }
    sl_err err = builder_begin(&builder);
    if (err == SL_OK) {
        err = sl_recording_read(fd, event_take, &builder, &out->info, why);
        if (err == SL_OK) {
            run_end(&builder);
            err = builder.err == SL_OK ? flatten(&builder) : builder.err;
        } else {
            builder.err = err; /* why says it */
        }
    }
    (void)close(fd);
    bool told = err != SL_OK && err == builder.err && why != NULL && why->code == err;
    builder_end(&builder);
    if (err != SL_OK) {
        model_recorded_free(out);
    }
    return err == SL_OK || told ? err
                                : sl_fail(why, err,
                                          err == SL_ERR_LIMIT ? "'%s' has more than can be counted"
                                                              : "no memory for what '%s' has",
                                          path);
}

void model_recorded_free(struct model_recorded *recorded)
{
    replay_trace_free(&recorded->trace);
    free(recorded->block_bytes);
    free(recorded->disk_bytes);
    free(recorded->said);
    free(recorded->uncounted);
    free(recorded->before);
    *recorded = (struct model_recorded){0};
}

struct model_options model_recorded_options(const struct model_recorded *recorded)
{
    return (struct model_options){.block_bytes = recorded->block_bytes,
                                  .block_tokens = recorded->block_tokens,
                                  .said = recorded->said,
                                  .before = recorded->before,
                                  .uncounted = recorded->uncounted,
                                  .disk = {.block_bytes = recorded->disk_bytes,
                                           .segment_bytes = recorded->info.header.segment_bytes,
                                           .path_count = recorded->info.header.path_count}};
}
