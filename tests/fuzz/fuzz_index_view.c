/* tests/fuzz/fuzz_index_view.c - a client reads a damaged index: it may neither crash nor hang.
 *
 * Input: patches of 12 bytes (u32 word number, u64 value) over the image of a small valid index,
 * header included. Bit 31 of the number makes the value a difference, bit 30 picks the first words
 * of the records' region, bit 29 a word that changes back and forth while the client reads. */
#include "ipc/shm/index_internal.h"
#include "ipc/shm/sl_pins.h"
#include "tests/support/own_id.h"

#include <pthread.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOVING_MAX   16u
#define PATCH_BYTES  12u
#define PATCHES_MAX  4096u
#define OBJECT_COUNT 40u
#define KEY_BYTES    64u

static unsigned char *base;  /* of a valid index: the whole mapping */
static unsigned char *image; /* the bytes that the reader sees */
static struct sl_index_view good;
static uint64_t image_bytes;
static struct sl_entry known;
static struct sl_pins *pins;

/* Words that another thread writes while the client reads, like a registrar. */
static struct {
    pthread_mutex_t lock;
    struct {
        index_word *word;
        uint64_t values[2];
    } at[MOVING_MAX];
    uint32_t count;
} moving = {.lock = PTHREAD_MUTEX_INITIALIZER};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static void need(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "fuzz_index_view: %s: %s\n", sl_err_name(err), why->text);
        exit(1);
    }
}

static void key_make(uint32_t number, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "model/block-%u/%.*s", number, (int)(number % 20),
             "xxxxxxxxxxxxxxxxxxxx");
}

static void fill(struct sl_index *index)
{
    char key[KEY_BYTES];
    struct sl_error why;
    struct sl_group_want want = {.key = {"block", 5}, .part_count = 4};
    sl_ref group = 0;
    need(sl_index_group_create(index, &want, &group, &why), &why);
    for (uint32_t i = 0; i < OBJECT_COUNT; i++) {
        sl_ref ref = 0;
        key_make(i, key);
        struct sl_entry entry = {
            .kind = SL_RECORD_RESERVED, .key = key, .key_length = (uint16_t)strlen(key)};
        entry.extent =
            (struct sl_extent){.generation = i + 1, .offset_bytes = 4096 * i, .length_bytes = 100};
        entry.group = i < 4 ? group : 0;
        entry.part_index = (uint16_t)(i % 4);
        need(sl_index_claim(index, &entry, &ref, &why), &why);
        if (i % 8 != 7) {
            need(sl_index_commit(index, ref, (struct sl_digest){0}), &why);
        }
        if (i < 4) {
            sl_index_group_fill(index, group, i);
        }
    }
}

static void *move(void *unused)
{
    (void)unused;
    for (uint64_t round = 0;; round++) {
        pthread_mutex_lock(&moving.lock);
        for (uint32_t i = 0; i < moving.count; i++) {
            atomic_store_explicit(moving.at[i].word, moving.at[i].values[round & 1],
                                  memory_order_relaxed);
        }
        uint32_t count = moving.count;
        pthread_mutex_unlock(&moving.lock);
        if (count == 0) {
            usleep(50);
        }
    }
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    pthread_t thread;
    char dir[] = "/dev/shm/sluice-fuzz-XXXXXX";
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena *arena = NULL;
    struct sl_index *index = NULL;
    (void)argc;
    (void)argv;
    if (mkdtemp(dir) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
    struct sl_arena_options arena_options = {
        .directory = dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    need(sl_arena_open_owner(&arena_options, &created, &arena, &why), &why);
    struct sl_index_options options = {
        .shm_dir = dir, .index_bytes_max = 512 * SL_KIB, .key_count = 40, .arena = arena};
    need(sl_index_open(&options, &created, &index, &why), &why);
    fill(index);
    char key[KEY_BYTES];
    key_make(20, key);
    need(sl_index_find(&index->view, key, (uint32_t)strlen(key), &known), &why);
    image_bytes = index->view.segment.mapped_bytes;
    good = index->view;
    base = malloc(image_bytes);
    image = aligned_alloc(4096, sl_align_up(image_bytes, 4096));
    if (base == NULL || image == NULL) {
        exit(1);
    }
    memcpy(base, index->view.segment.header, image_bytes);
    struct sl_pins_options pins_options = {.shm_dir = dir,
                                           .name = "client",
                                           .self = own_id(),
                                           .slot_count = 64,
                                           .access_count = 64,
                                           .pinned_bytes_max = SL_GIB};
    need(sl_pins_create(&pins_options, &pins, &why), &why);
    (void)sl_shm_file_remove(dir, "pins.client", NULL);
    sl_index_close(&index);
    sl_arena_close(&arena);
    (void)sl_shm_file_remove(dir, "index", NULL);
    (void)sl_shm_file_remove(dir, "arena.0", NULL);
    rmdir(dir);
    if (pthread_create(&thread, NULL, move, NULL) != 0) {
        exit(1);
    }
    return 0;
}

static void patch(const uint8_t *bytes, size_t length_bytes)
{
    uint64_t word_count = image_bytes / 8;
    uint64_t records_word =
        (uint64_t)((unsigned char *)good.records - (unsigned char *)good.segment.header) / 8;
    pthread_mutex_lock(&moving.lock);
    moving.count = 0;
    memcpy(image, base, image_bytes);
    for (size_t at = 0; at + PATCH_BYTES <= length_bytes && at < PATCH_BYTES * PATCHES_MAX;
         at += PATCH_BYTES) {
        uint32_t number;
        uint64_t value;
        uint64_t old;
        memcpy(&number, bytes + at, 4);
        memcpy(&value, bytes + at + 4, 8);
        uint64_t word = (number & 0x1fffffff) % word_count;
        if ((number & 0x40000000) != 0) {
            word = (records_word + (number & 0x1fffffff) % 2048) % word_count;
        }
        memcpy(&old, image + word * 8, 8);
        value = (number & 0x80000000) != 0 ? old ^ value : value;
        memcpy(image + word * 8, &value, 8);
        if ((number & 0x20000000) != 0 && moving.count < MOVING_MAX) {
            moving.at[moving.count].word = (index_word *)(void *)(image + word * 8);
            moving.at[moving.count].values[0] = old;
            moving.at[moving.count++].values[1] = value;
        }
    }
    pthread_mutex_unlock(&moving.lock);
}

/* Reads all of a found entry, like a client. */
static uint64_t use(const struct sl_entry *entry)
{
    uint64_t sum =
        entry->extent.generation + entry->digest.low + entry->disk.segment + entry->group;
    for (uint32_t i = 0; i < entry->key_length; i++) {
        sum += (unsigned char)entry->key[i];
    }
    return sum;
}

/* A pin that was taken has the entry's generation, and is released. */
static void pin(const struct sl_index_view *view, const struct sl_entry *entry)
{
    sl_pin taken = 0;
    sl_err err = sl_pins_take(pins, view, entry, &taken);
    SL_ASSERT(err == SL_OK || err == SL_ERR_STALE || err == SL_ERR_LIMIT ||
              err == SL_ERR_NOT_FOUND);
    if (err == SL_OK) {
        sl_pins_note_access(pins, entry->ref, entry->extent.generation);
        sl_pins_release(pins, taken);
    }
    SL_ASSERT(sl_pins_pinned_bytes(pins) == 0);
}

static uint64_t read_all(const struct sl_index_view *view)
{
    char keys[OBJECT_COUNT][KEY_BYTES];
    struct sl_key asked[OBJECT_COUNT];
    struct sl_entry out[OBJECT_COUNT];
    sl_err codes[OBJECT_COUNT];
    char key_out[SL_KEY_BYTES_MAX + 1];
    struct sl_index_stats stats;
    uint64_t cursor = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < OBJECT_COUNT; i++) {
        key_make(i, keys[i]);
        asked[i] = (struct sl_key){keys[i], (uint32_t)strlen(keys[i])};
        if (sl_index_find(view, asked[i].at, asked[i].length, &out[i]) == SL_OK) {
            sum += use(&out[i]) + sl_index_unchanged(view, &out[i]);
            pin(view, &out[i]);
        }
    }
    sl_index_find_batch(view, asked, OBJECT_COUNT, out, codes);
    for (uint32_t i = 0; i < OBJECT_COUNT; i++) {
        sum += codes[i] == SL_OK ? use(&out[i]) : 0;
        SL_ASSERT(codes[i] == SL_OK || codes[i] == SL_ERR_NOT_FOUND || codes[i] == SL_ERR_BUSY);
        sum += sl_index_claim_exists(view, (sl_ref)sum, sum);
    }
    sl_index_find_batch(view, asked, OBJECT_COUNT, NULL, codes);
    sum += (uint64_t)sl_index_find_group(view, "block", 5);
    sum += sl_index_unchanged(view, &known);
    for (uint64_t i = 0; i < 10000 && sl_index_scan(view, &cursor, &out[0], key_out); i++) {
        sum += use(&out[0]) + strlen(key_out);
    }
    sl_index_view_stats(view, &stats);
    return sum + stats.key_count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static volatile uint64_t sink;
    patch(bytes, length_bytes);
    struct sl_index_view view = {.segment = good.segment};
    view.segment.header = image;
    view.segment.data = image + (good.segment.data - (unsigned char *)good.segment.header);
    if (index_view_adopt(&view, NULL) == SL_OK) {
        sink = read_all(&view);
    }
    (void)sink;
    return 0;
}
