/* tests/unit/runtime/net/fabric_places_test.c - pieces and grants with many ranges, over tcp on the
 * loopback: by the actor's thread, by movers, and over two rails. A linear model computes the right
 * bytes, and shows that no others were touched. The test sets the clock. */
#include "runtime/net/fabric/core/tables.h"
#include "tests/support/fabric_end.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY   (6 * SL_MIB)
#define CHUNK    (2 * SL_MIB)
#define STRIDE   (96 * SL_KIB)
#define A_SECOND SL_NS_PER_S
#define MANY     SL_FABRIC_PLACES_MAX
#define CUTS_MAX 8192u

/* Each end has an arena and a pool. */
struct side {
    struct fabric_end *end;
    unsigned char *bytes[2];
    uint32_t memories[2];
};
static struct fabric_end a, b; /* a asks, b owns */
static struct side side_a, side_b;
static uint64_t clock_ns, random_state;
static struct sl_fabric_options options_a, options_b;

/* ---- ends ---- */

static void setup(void)
{
    clock_ns = 1000 * A_SECOND;
    end_options(&a, &options_a, "tcp");
    end_options(&b, &options_b, "tcp");
    options_a.address = options_b.address = "127.0.0.1";
    options_a.stall_ns = options_b.stall_ns = 10 * A_SECOND;
    options_a.movers = options_b.movers = 0;
}

static void setup_movers(void)
{
    setup();
    options_a.movers = options_b.movers = 2;
}

static void setup_rails(void)
{
    setup_movers();
    options_a.address = options_b.address = "127.0.0.1,127.0.0.2";
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
    for (struct side *side = &side_a; side != NULL; side = side == &side_a ? &side_b : NULL) {
        if (side->bytes[1] != NULL) {
            munmap(side->bytes[1], MEMORY);
            side->bytes[1] = NULL;
        }
    }
}

static void pool_add(struct side *side, struct fabric_end *end)
{
    struct sl_error why = {0};
    *side = (struct side){.end = end, .bytes = {end->bytes}, .memories = {end->memory}};
    side->bytes[1] = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(side->bytes[1] != MAP_FAILED);
    const struct sl_fabric_memory pool = {
        .at = side->bytes[1], .length_bytes = MEMORY, .stride_bytes = STRIDE};
    ck_assert_int_eq(sl_fabric_memory_add(end->fabric, &pool, &side->memories[1], &why), SL_OK);
    end->registered = false;
    end->memory = side->memories[1]; /* what registered() is to speak of */
}

static void open_both(void)
{
    struct sl_error why = {0};
    a.now_ns = b.now_ns = &clock_ns;
    ck_assert_int_eq(end_open(&a, &options_a, MEMORY, CHUNK, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, MEMORY, CHUNK, &why), SL_OK);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    pool_add(&side_a, &a);
    pool_add(&side_b, &b);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    a.memory = side_a.memories[0];
    b.memory = side_b.memories[0];
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
}

static void turn(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        pair_step(&a, &b);
    }
}

static uint32_t places_used(const struct sl_fabric *fabric)
{
    return fabric->places.used_count;
}

/* ---- lists ---- */

static uint64_t below(uint64_t bound)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % bound;
}

static uint64_t some_length(uint64_t most)
{
    static const uint64_t usual[] = {1,      7,      64,    4096,   16384,  131071,
                                     131072, 131073, 65536, 262144, 300001, 2 * SL_MIB};
    uint64_t length = below(3) == 0 ? 1 + below(20000) : usual[below(SL_COUNT(usual))];
    return SL_MIN(length, most);
}

/* Both memories divided into ranges without overlap, shuffled: the lists are made of them. */
static struct sl_fabric_place cuts_a[CUTS_MAX], cuts_b[CUTS_MAX];
static uint32_t cuts_make(const struct side *side, struct sl_fabric_place *cuts, uint64_t most)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < 2; m++) {
        for (uint64_t at = below(5000); at < MEMORY && count < CUTS_MAX;) {
            uint64_t length = some_length(SL_MIN(most, MEMORY - at));
            cuts[count++] = (struct sl_fabric_place){
                .memory = side->memories[m], .offset_bytes = at, .length_bytes = length};
            at += length + (below(2) == 0 ? 0 : below(5000));
        }
    }
    for (uint32_t i = count; i > 1; i--) {
        if (below(8) != 0) { /* some stay neighbours */
            uint32_t other = (uint32_t)below(i);
            struct sl_fabric_place kept = cuts[i - 1];
            cuts[i - 1] = cuts[other];
            cuts[other] = kept;
        }
    }
    return count;
}

static unsigned char *place_bytes(const struct side *side, const struct sl_fabric_place *place)
{
    return side->bytes[place->memory == side->memories[1]] + place->offset_bytes;
}

static uint64_t places_length(const struct sl_fabric_place *places, uint32_t count)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        length += places[i].length_bytes;
    }
    return length;
}

static void places_read(const struct side *side, const struct sl_fabric_place *places,
                        uint32_t count, unsigned char *out)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(out, place_bytes(side, &places[i]), places[i].length_bytes);
        out += places[i].length_bytes;
    }
}

static bool places_hold(const struct side *side, const struct sl_fabric_place *places,
                        uint32_t count, const unsigned char *bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(place_bytes(side, &places[i]), bytes, places[i].length_bytes) != 0) {
            return false;
        }
        bytes += places[i].length_bytes;
    }
    return true;
}

static void side_fill(const struct side *side, int with)
{
    memset(side->bytes[0], with, MEMORY);
    memset(side->bytes[1], with, MEMORY);
}

static bool side_is(const struct side *side, unsigned char with)
{
    for (uint32_t m = 0; m < 2; m++) {
        if (side->bytes[m][0] != with ||
            memcmp(side->bytes[m], side->bytes[m] + 1, MEMORY - 1) != 0) {
            return false;
        }
    }
    return true;
}

static void side_pattern(const struct side *side, uint64_t seed)
{
    pattern_fill(side->bytes[0], MEMORY, seed);
    pattern_fill(side->bytes[1], MEMORY, seed + 1);
}

/* A grant of b, opened at a. Returns the key. */
static uint32_t grant_places(const struct sl_fabric_place *places, uint32_t count, uint32_t *key)
{
    struct sl_error why = {0};
    const struct sl_fabric_grant want = {.peer = b.peer,
                                         .length_bytes = places_length(places, count),
                                         .offset_bytes = 77, /* not looked at */
                                         .places = places,
                                         .place_count = count};
    uint32_t grant = end_grant(&b, &want);
    sl_err err = sl_fabric_key_open(a.fabric, a.peer, b.key, b.key_bytes, key, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return grant;
}

static sl_err post(const struct sl_fabric_piece *pieces, uint32_t count, uint64_t cookie,
                   uint64_t deadline_ns)
{
    const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                .pieces = pieces,
                                                .piece_count = count,
                                                .deadline_ns = deadline_ns,
                                                .cookie = cookie};
    return sl_fabric_post(a.fabric, &transfer, NULL);
}

/* Posts one piece with these ranges of a, from the start of the key on. */
static sl_err post_places(uint32_t key, const struct sl_fabric_place *places, uint32_t count,
                          uint64_t cookie, uint64_t deadline_ns)
{
    const struct sl_fabric_piece piece = {.key = key,
                                          .memory = 0xbadbad, /* not looked at */
                                          .length_bytes = places_length(places, count),
                                          .places = places,
                                          .place_count = count};
    return post(&piece, 1, cookie, deadline_ns);
}

/* ---- the model ---- */

/* The right bytes of both sides of a transfer. */
static unsigned char linear[2 * MEMORY], image[2][MEMORY];

/* Makes pieces of 1..most_places consecutive ranges of a, one after another in the key's range.
 * Returns the number of pieces and their total bytes. */
#define PIECES 24u
static uint32_t pieces_make(struct sl_fabric_piece *pieces, uint32_t cut_count, uint64_t room_bytes,
                            uint32_t most_places, uint32_t key)
{
    uint32_t count = 0, cut = 0;
    uint64_t at = 0;
    while (count < PIECES && cut < cut_count) {
        struct sl_fabric_piece *piece = &pieces[count];
        uint32_t want = 1 + (uint32_t)below(SL_MIN(most_places, cut_count - cut));
        uint64_t length = places_length(&cuts_a[cut], want);
        if (length > room_bytes - at) {
            break;
        }
        *piece =
            (struct sl_fabric_piece){.key = key, .remote_offset_bytes = at, .length_bytes = length};
        if (want == 1 && below(2) == 0) { /* in parallel with the others */
            piece->memory = cuts_a[cut].memory;
            piece->offset_bytes = cuts_a[cut].offset_bytes;
        } else {
            piece->places = &cuts_a[cut];
            piece->place_count = want;
        }
        at += length;
        cut += want;
        count++;
    }
    return count;
}

static void images_take(const struct side *side)
{
    memcpy(image[0], side->bytes[0], MEMORY);
    memcpy(image[1], side->bytes[1], MEMORY);
}

/* Writes the linear bytes to the ranges of the image. */
static void images_write(const struct side *side, const struct sl_fabric_place *places,
                         uint32_t count, const unsigned char *bytes, uint64_t length_bytes)
{
    for (uint32_t i = 0; i < count && length_bytes > 0; i++) {
        uint64_t here = SL_MIN(places[i].length_bytes, length_bytes);
        memcpy(image[places[i].memory == side->memories[1]] + places[i].offset_bytes, bytes, here);
        bytes += here;
        length_bytes -= here;
    }
}

static void images_check(const struct side *side, uint64_t seed)
{
    for (uint32_t m = 0; m < 2; m++) {
        ck_assert_msg(memcmp(side->bytes[m], image[m], MEMORY) == 0,
                      "memory %u is not what it must be, seed %" PRIu64, m, seed);
    }
}

static const struct {
    uint64_t unit_bytes, longest_bytes; /* of a place */
    uint32_t places;                    /* at most, of a piece */
} shapes[] = {
    {SL_MIB, 2 * SL_MIB, 3},     {SL_MIB, 20000, 200},      {4 * SL_MIB, 4096, MANY},
    {64 * SL_KIB, 300001, 20},   {16 * SL_KIB, 131073, 40}, {4 * SL_MIB, 131073, 32},
    {256 * SL_KIB, 65536, 1000}, {SL_MIB, 1, MANY},
};
START_TEST(random_lists_match_a_linear_model)
    {
        static struct sl_fabric_piece pieces[PIECES];
        static struct sl_digest digests[PIECES];
        const uint64_t seed = 1 + (uint64_t)_i;
        const bool listed = _i % 2 == 0;
        uint32_t shape = (uint32_t)_i / 2 % SL_COUNT(shapes), key = 0;
        printf("seed %" PRIu64 "\n", seed);
        random_state = seed * 1000003;
        options_a.unit_bytes = shapes[shape].unit_bytes;
        options_a.region_bytes_max = 300 * SL_KIB;
        open_both();
        if (seed > 16 && a.fabric->rail_count == 1) { /* units as a NIC wants them */
            a.fabric->rails[0]->spans_max = 1 + (uint32_t)below(40);
        }
        side_pattern(&side_a, seed);
        side_pattern(&side_b, seed + 7);
        uint32_t count_a = cuts_make(&side_a, cuts_a, shapes[shape].longest_bytes);
        uint32_t count_b = cuts_make(&side_b, cuts_b, shapes[shape].longest_bytes);
        if (!listed) {
            cuts_b[0] = (struct sl_fabric_place){
                .memory = b.memory, .offset_bytes = 4099, .length_bytes = MEMORY - 4099};
        }
        uint32_t most = 1 + (uint32_t)below(MANY);
        count_b = listed ? SL_MIN(count_b, most) : 1;
        uint64_t room = places_length(cuts_b, count_b);
        uint32_t grant = grant_places(cuts_b, count_b, &key);
        uint32_t count = pieces_make(pieces, count_a, room, shapes[shape].places, key);
        for (; count == 0; count_a--) { /* the first was longer than what was granted */
            ck_assert_uint_gt(count_a, 1);
            memmove(cuts_a, cuts_a + 1, (count_a - 1) * sizeof(cuts_a[0]));
            count = pieces_make(pieces, count_a - 1, room, shapes[shape].places, key);
        }
        uint64_t moved = pieces[count - 1].remote_offset_bytes + pieces[count - 1].length_bytes;
        places_read(&side_b, cuts_b, count_b, linear);
        for (uint32_t i = 0; i < count; i++) {
            digests[i] =
                sl_digest_of(linear + pieces[i].remote_offset_bytes, pieces[i].length_bytes);
            pieces[i].digest = &digests[i];
        }
        images_take(&side_a);
        images_write(&side_a, cuts_a, count_a, linear, moved);

        ck_assert_int_eq(post(pieces, count, 1, SL_NEVER_NS), SL_OK);
        memset(pieces, 0xff, sizeof(pieces)); /* lists were copied as well */
        memset(cuts_b, 0xff, sizeof(cuts_b));
        memset(cuts_a, 0xff, sizeof(cuts_a));
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_msg(a.dones[0].code == SL_OK, "seed %" PRIu64 ": code %d", seed, a.dones[0].code);
        ck_assert_uint_eq(a.dones[0].moved_bytes, moved);
        images_check(&side_a, seed);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        ck_assert_uint_eq(places_used(a.fabric) + places_used(b.fabric), 0);
    }
END_TEST

/* More ranges of one byte each than a receive or a send takes, from another such list. */
START_TEST(a_thousand_places_of_one_byte)
    {
        static struct sl_fabric_place ours[MANY], theirs[MANY];
        uint32_t key = 0;
        open_both();
        side_pattern(&side_a, 1);
        side_pattern(&side_b, 2);
        for (uint32_t i = 0; i < MANY; i++) {
            ours[i] = (struct sl_fabric_place){
                .memory = side_a.memories[i % 2], .offset_bytes = 3 * i, .length_bytes = 1};
            theirs[i] = (struct sl_fabric_place){.memory = side_b.memories[i % 3 == 0],
                                                 .offset_bytes = MEMORY - 1 - 2 * i,
                                                 .length_bytes = 1};
        }
        places_read(&side_b, theirs, MANY, linear);
        images_take(&side_a);
        images_write(&side_a, ours, MANY, linear, MANY);
        (void)grant_places(theirs, MANY, &key);

        ck_assert_int_eq(post_places(key, ours, MANY, 1, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);

        ck_assert_int_eq(a.dones[0].code, SL_OK);
        images_check(&side_a, 0);
    }
END_TEST

/* ---- values in a row, digests, ends on the way ---- */

#define ROW_MAX 20u
struct row { /* values that are read one after the other from the start of b's arena */
    struct sl_fabric_place places[ROW_MAX][80];
    uint32_t counts[ROW_MAX];
    uint64_t at[ROW_MAX], bytes[ROW_MAX];
};
static struct row row;

/* Values around the size from which movers take them, layer-first in a's pool. */
static void row_make(uint32_t values, uint64_t around_bytes)
{
    static const int64_t off[] = {0, -1, 1, 5000, -5000};
    uint64_t ours = 0, theirs = 0;
    for (uint32_t i = 0; i < values; i++) {
        uint64_t bytes = around_bytes + (uint64_t)off[i % SL_COUNT(off)];
        uint32_t parts = i % 4 == 0 ? 1 : 2 + i * 13 % 78;
        row.at[i] = theirs;
        row.bytes[i] = bytes;
        row.counts[i] = parts;
        for (uint32_t k = 0; k < parts; k++) {
            uint64_t length = k + 1 == parts ? bytes - k * (bytes / parts) : bytes / parts;
            row.places[i][k] = (struct sl_fabric_place){
                .memory = side_a.memories[1], .offset_bytes = ours, .length_bytes = length};
            ours += length + (k % 3 == 2 ? 0 : 64); /* some adjoin */
        }
        theirs += bytes;
    }
    ck_assert_uint_le(ours, MEMORY);
    ck_assert_uint_le(theirs, MEMORY);
}

static sl_err row_post(uint32_t value, uint32_t key, const struct sl_digest *digest,
                       uint64_t cookie, uint64_t deadline_ns)
{
    const struct sl_fabric_piece piece = {.key = key,
                                          .remote_offset_bytes = row.at[value],
                                          .length_bytes = row.bytes[value],
                                          .digest = digest,
                                          .places = row.places[value],
                                          .place_count = row.counts[value]};
    return post(&piece, 1, cookie, deadline_ns);
}

static void row_spoil(uint32_t value, int with)
{
    for (uint32_t k = 0; k < row.counts[value]; k++) {
        memset(place_bytes(&side_a, &row.places[value][k]), with,
               row.places[value][k].length_bytes);
    }
}

static bool row_is_spoilt(uint32_t value, unsigned char with)
{
    memset(linear, with, row.bytes[value]);
    return places_hold(&side_a, row.places[value], row.counts[value], linear);
}

/* Some are given up halfway, and one has a wrong digest: each ends once, is complete or untouched,
 * and does not affect the others. */
START_TEST(values_in_a_row_end_each_for_itself)
    {
        enum { WRONG = 5 };
        bool settled[ROW_MAX] = {0};
        uint32_t key = 0;
        open_both();
        side_pattern(&side_b, 3);
        row_make(ROW_MAX, _i % 2 == 0 ? 128 * SL_KIB : 200 * SL_KIB);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint32_t i = 0; i < ROW_MAX; i++) {
            struct sl_digest digest = sl_digest_of(b.bytes + row.at[i], row.bytes[i]);
            digest.low ^= i == WRONG;
            ck_assert_int_eq(row_post(i, key, &digest, 100 + i, SL_NEVER_NS), SL_OK);
        }
        for (int i = 0; i < 2 * _i; i++) {
            pair_step(&a, &b);
        }
        for (uint32_t i = 0; i < ROW_MAX; i += 3) {
            (void)sl_fabric_cancel(a.fabric, 100 + i);
        }
        for (uint32_t left = ROW_MAX; left > 0;) {
            pair_step(&a, &b);
            for (uint32_t i = 0; i < ROW_MAX; i++) {
                const struct end_done *done = settled[i] ? NULL : end_done_of(&a, 100 + i);
                if (done != NULL) { /* from here on its places are ours */
                    settled[i] = true;
                    left--;
                    if (done->code != SL_OK) {
                        row_spoil(i, 0x33);
                    }
                }
            }
        }
        turn(50);
        for (uint32_t i = 0; i < ROW_MAX; i++) {
            sl_err code = end_done_of(&a, 100 + i)->code;
            ck_assert(code == SL_OK
                          ? places_hold(&side_a, row.places[i], row.counts[i], b.bytes + row.at[i])
                          : row_is_spoilt(i, 0x33));
            ck_assert(code == SL_OK || (i == WRONG && code == SL_ERR_CORRUPT) ||
                      (i % 3 == 0 && code == SL_ERR_CANCELLED));
        }
        ck_assert_int_eq(end_done_of(&a, 100 + WRONG)->code, SL_ERR_CORRUPT);
        ck_assert_uint_eq(a.downs, 0);
        ck_assert_uint_eq(places_used(a.fabric), 0);
    }
END_TEST

/* The peer stops halfway. After the deadline no byte arrives, although it sends the rest. */
START_TEST(after_the_deadline_nothing_lands)
    {
        uint32_t key = 0;
        open_both();
        side_pattern(&side_b, 4);
        row_make(1, 5 * SL_MIB + 17);
        row.counts[0] = 0;
        for (uint64_t at = 0; at < row.bytes[0]; row.counts[0]++) {
            uint64_t length = SL_MIN(row.bytes[0] - at, 70001 + (uint64_t)row.counts[0]);
            row.places[0][row.counts[0]] =
                (struct sl_fabric_place){.memory = side_a.memories[row.counts[0] % 2],
                                         .offset_bytes = at,
                                         .length_bytes = length};
            at += length;
        }
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(row_post(0, key, NULL, 1, clock_ns + A_SECOND), SL_OK);
        for (int i = 0; i < 4 * _i; i++) {
            pair_step(&a, &b);
        }
        for (int i = 0; i < 5 && a.done_count == 0; i++) {
            end_step(&a, 1); /* b does not run */
        }
        bool was_done = a.done_count == 1;
        clock_ns += A_SECOND;
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * A_SECOND;
        while (a.done_count == 0) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            end_step(&a, 5);
        }
        ck_assert(a.dones[0].code == SL_ERR_TIMEOUT || was_done || options_a.movers > 0);
        side_fill(&side_a, 0x66);

        turn(60);
        ck_assert_uint_eq(a.done_count, 1);
        ck_assert(side_is(&side_a, 0x66));
        ck_assert_uint_eq(places_used(a.fabric), 0);
        ck_assert_int_eq(row_post(0, key, NULL, 2, SL_NEVER_NS), SL_OK); /* the link is good */
        PAIR_UNTIL(&a, &b, a.done_count == 2);
        ck_assert_int_eq(a.dones[1].code, SL_OK);
        ck_assert(places_hold(&side_a, row.places[0], row.counts[0], b.bytes));
        ck_assert_uint_eq(a.downs, 0);
    }
END_TEST

/* Layers of blocks: 40 ranges of each memory, not adjacent. */
#define LAYERS 80u
#define LAYER  70001u
static void layers_make(const struct side *side, struct sl_fabric_place *places)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        places[i] = (struct sl_fabric_place){.memory = side->memories[i % 2],
                                             .offset_bytes = (LAYERS - i) * (LAYER + 100),
                                             .length_bytes = LAYER};
    }
}

/* A reader is halfway when its grant ends: it does not get bytes written afterwards. */
START_TEST(an_ended_grant_is_not_read_any_more)
    {
        struct sl_fabric_place ours[LAYERS], theirs[LAYERS];
        uint32_t key = 0;
        bool gone = false;
        open_both();
        side_pattern(&side_b, 6);
        images_take(&side_b);
        side_fill(&side_a, 0x11);
        layers_make(&side_a, ours);
        layers_make(&side_b, theirs);
        uint32_t grant = grant_places(theirs, LAYERS, &key);
        ck_assert_int_eq(post_places(key, ours, LAYERS, 1, SL_NEVER_NS), SL_OK);
        for (int i = 0; i < _i; i++) { /* into the reading, further each time */
            pair_step(&a, &b);
        }
        ck_assert_int_eq(fabric_memory_drop(b.fabric, side_b.memories[1]), SL_ERR_BUSY);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        ck_assert_uint_eq(places_used(b.fabric), 0);
        side_fill(&side_b, 0x77); /* the next owner's */
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        turn(20);
        for (uint32_t i = 0; i < LAYERS; i++) {
            const unsigned char *got = place_bytes(&side_a, &ours[i]);
            const unsigned char *was =
                image[theirs[i].memory == side_b.memories[1]] + theirs[i].offset_bytes;
            for (uint32_t k = 0; k < LAYER; k++) {
                ck_assert(got[k] == was[k] || got[k] == 0x11);
            }
        }
        ck_assert(a.dones[0].code == SL_ERR_PERMISSION || a.dones[0].code == SL_OK);
        ck_assert_uint_eq(places_used(a.fabric), 0);
        while (!gone) {
            ck_assert_int_eq(sl_fabric_memory_remove_step(b.fabric, side_b.memories[1], &gone),
                             SL_OK);
        }
        ck_assert_int_eq(fabric_memory_drop(b.fabric, side_b.memories[0]), SL_OK);
    }
END_TEST

/* ---- tables and wrong calls ---- */

START_TEST(a_memory_is_busy_while_a_place_is_in_it)
    {
        struct sl_fabric_place ours[LAYERS];
        uint32_t key = 0;
        bool gone = false;
        open_both();
        side_pattern(&side_b, 8);
        layers_make(&side_a, ours);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        ck_assert_int_eq(post_places(key, ours, LAYERS, 1, SL_NEVER_NS), SL_OK);
        for (uint32_t m = 0; m < 2; m++) {
            ck_assert_int_eq(fabric_memory_drop(a.fabric, side_a.memories[m]), SL_ERR_BUSY);
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, side_a.memories[m], &gone),
                             SL_ERR_BUSY);
        }
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert(places_hold(&side_a, ours, LAYERS, b.bytes));
        ck_assert_int_eq(fabric_memory_drop(a.fabric, side_a.memories[1]), SL_OK);
        ck_assert_int_eq(post_places(key, ours, LAYERS, 2, SL_NEVER_NS),
                         SL_ERR_NOT_FOUND); /* the second place is in it */
        ck_assert_int_eq(fabric_memory_drop(a.fabric, side_a.memories[0]), SL_OK);
        ck_assert_uint_eq(places_used(a.fabric), 0);
    }
END_TEST

START_TEST(wrong_lists_are_refused)
    {
        static struct sl_fabric_place many[MANY + 1];
        uint32_t key = 0, grant = 0;
        open_both();
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint32_t i = 0; i <= MANY; i++) {
            many[i] = (struct sl_fabric_place){
                .memory = a.memory, .offset_bytes = 2 * i, .length_bytes = 1};
        }
        const struct sl_fabric_place good = {.memory = a.memory, .length_bytes = 100};
        struct sl_fabric_place over = {
            .memory = a.memory, .offset_bytes = MEMORY - 50, .length_bytes = 100};
        struct sl_fabric_place wraps = {
            .memory = a.memory, .offset_bytes = UINT64_MAX - 20, .length_bytes = 100};
        struct sl_fabric_place sums[2] = {{.memory = a.memory, .length_bytes = UINT64_MAX - 49},
                                          {.memory = a.memory, .length_bytes = 150}};
        struct sl_fabric_place holes[2] = {{.memory = a.memory, .length_bytes = 100},
                                           {.memory = a.memory, .length_bytes = 0}};
        struct sl_fabric_place nowhere = {.memory = 0xbad, .length_bytes = 100};
        const struct {
            const struct sl_fabric_place *places;
            uint32_t count;
            uint64_t length_bytes;
            sl_err code;
        } cases[] = {
            {NULL, 1, 100, SL_ERR_INVALID},
            {&good, 0, 100, SL_ERR_INVALID},
            {many, MANY + 1, MANY + 1, SL_ERR_INVALID},
            {&good, 1, 99, SL_ERR_INVALID},
            {&good, 1, 101, SL_ERR_INVALID},
            {&over, 1, 100, SL_ERR_INVALID},
            {&wraps, 1, 100, SL_ERR_INVALID},
            {sums, 2, 100, SL_ERR_INVALID},
            {holes, 2, 100, SL_ERR_INVALID},
            {&nowhere, 1, 100, SL_ERR_NOT_FOUND},
            {&good, 1, 0, SL_ERR_INVALID},
        };
        for (size_t i = 0; i < SL_COUNT(cases); i++) {
            const struct sl_fabric_piece piece = {.memory = a.memory,
                                                  .key = key,
                                                  .length_bytes = cases[i].length_bytes,
                                                  .places = cases[i].places,
                                                  .place_count = cases[i].count};
            ck_assert_int_eq(post(&piece, 1, 1, SL_NEVER_NS), cases[i].code);
            const struct sl_fabric_grant want = {.memory = a.memory,
                                                 .peer = a.peer,
                                                 .length_bytes = cases[i].length_bytes,
                                                 .places = cases[i].places,
                                                 .place_count = cases[i].count};
            ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, NULL), cases[i].code);
        }
        ck_assert_uint_eq(places_used(a.fabric), 0);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_OK); /* it is not in use */
    }
END_TEST

/* Each memory of a list is checked like a single one: here one is not registered yet. Memory that
 * peers may read only by tickets is readable by this one. */
START_TEST(each_memory_of_a_list_is_asked)
    {
        static unsigned char bytes[4 * SL_PAGE_BYTES];
        uint32_t key = 0, grant = 0, third = 0;
        open_both();
        side_pattern(&side_b, 2);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        const struct sl_fabric_memory hidden = {.at = bytes,
                                                .length_bytes = sizeof(bytes),
                                                .stride_bytes = SL_PAGE_BYTES,
                                                .unread = true};
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &hidden, &third, NULL), SL_OK);
        const struct sl_fabric_place places[2] = {{.memory = a.memory, .length_bytes = 100},
                                                  {.memory = third, .length_bytes = 50}};
        struct sl_fabric_grant want = {
            .peer = a.peer, .length_bytes = 150, .places = places, .place_count = 2};
        ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, NULL), SL_ERR_BUSY);
        ck_assert_int_eq(post_places(key, places, 2, 1, SL_NEVER_NS), SL_ERR_BUSY);
        a.registered = false;
        a.memory = third; /* what registered() is to speak of */
        PAIR_UNTIL(&a, &b, a.registered);

        ck_assert_int_eq(post_places(key, places, 2, 1, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, a.done_count == 1);
        ck_assert_int_eq(a.dones[0].code, SL_OK);
        ck_assert_mem_eq(bytes, b.bytes + 100, 50);

        ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, NULL), SL_OK);
        uint32_t theirs = pair_key(&a, &b);
        memset(b.bytes, 0, 200);
        ck_assert_int_eq(end_post(&b, theirs, 0, 150, 2, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 2) != NULL);
        ck_assert_int_eq(end_done_of(&b, 2)->code, SL_OK);
        ck_assert_mem_eq(b.bytes + 100, bytes, 50);
        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        PAIR_UNTIL(&a, &b, a.grants_ended == 1);
        ck_assert_int_eq(end_post(&b, theirs, 0, 150, 3, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 3) != NULL);
        ck_assert_int_eq(end_done_of(&b, 3)->code, SL_ERR_PERMISSION);
    }
END_TEST

START_TEST(the_table_of_places_has_a_bound)
    {
        struct sl_fabric_place ours[LAYERS];
        uint32_t key = 0, grant = 0;
        options_a.places_max = LAYERS;
        open_both();
        side_pattern(&side_b, 9);
        layers_make(&side_a, ours);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        const struct sl_fabric_grant want = {
            .peer = a.peer, .length_bytes = 2ull * LAYER, .places = ours, .place_count = 2};
        for (uint32_t round = 0; round < 200; round++) {
            struct sl_fabric_piece pieces[2];
            for (uint32_t i = 0; i < 2; i++) {
                pieces[i] = (struct sl_fabric_piece){
                    .key = key, .length_bytes = 1, .places = &ours[i], .place_count = 1};
            }
            struct sl_fabric_place tiny[LAYERS];
            for (uint32_t i = 0; i < LAYERS; i++) {
                tiny[i] = ours[i];
                tiny[i].length_bytes = 1 + round % 3;
            }
            ck_assert_int_eq(post_places(key, tiny, LAYERS - 1, round, SL_NEVER_NS), SL_OK);
            ck_assert_int_eq(post_places(key, tiny, 2, round, SL_NEVER_NS), SL_ERR_LIMIT);
            ck_assert_int_eq(post(pieces, 2, round, SL_NEVER_NS), SL_ERR_INVALID);
            pieces[0].length_bytes = pieces[1].length_bytes = LAYER;
            ck_assert_int_eq(post(pieces, 2, round, SL_NEVER_NS), SL_ERR_LIMIT);
            ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, NULL), SL_ERR_LIMIT);
            PAIR_UNTIL(&a, &b, a.done_count == round + 1);
            ck_assert_int_eq(a.dones[round].code, SL_OK);
            ck_assert_uint_eq(places_used(a.fabric), 0);
            ck_assert(places_hold(&side_a, tiny, LAYERS - 1, b.bytes));
        }
    }
END_TEST

/* When a peer ends while lists are in use, none of their entries stays allocated. */
START_TEST(a_lost_link_gives_the_places_back)
    {
        struct sl_fabric_place ours[LAYERS];
        uint32_t key = 0;
        open_both();
        layers_make(&side_a, ours);
        (void)pair_grant(&b, &a, 0, MEMORY, &key);
        for (uint64_t i = 0; i < 10; i++) {
            ck_assert_int_eq(post_places(key, ours, LAYERS, i, SL_NEVER_NS), SL_OK);
        }
        turn((unsigned)_i);
        sl_fabric_close(&b.fabric);
        PAIR_UNTIL(&a, &b, a.done_count == 10);
        ck_assert_uint_eq(places_used(a.fabric), 0);
        side_fill(&side_a, 0x21);
        for (int i = 0; i < 20; i++) {
            end_step(&a, 1);
        }
        ck_assert(side_is(&side_a, 0x21));
        ck_assert_int_eq(fabric_memory_drop(a.fabric, side_a.memories[0]), SL_OK);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, side_a.memories[1]), SL_OK);
    }
END_TEST

static TCase *all_tests(const char *name, SFun before)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, before, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, random_lists_match_a_linear_model, 0, 4 * SL_COUNT(shapes));
    tcase_add_test(tests, a_thousand_places_of_one_byte);
    tcase_add_loop_test(tests, values_in_a_row_end_each_for_itself, 0, 12);
    tcase_add_loop_test(tests, after_the_deadline_nothing_lands, 0, 6);
    tcase_add_loop_test(tests, an_ended_grant_is_not_read_any_more, 0, 12);
    tcase_add_test(tests, a_memory_is_busy_while_a_place_is_in_it);
    tcase_add_test(tests, wrong_lists_are_refused);
    tcase_add_test(tests, each_memory_of_a_list_is_asked);
    tcase_add_test(tests, the_table_of_places_has_a_bound);
    tcase_add_loop_test(tests, a_lost_link_gives_the_places_back, 0, 8);
    return tests;
}

static Suite *suite(void)
{
    Suite *all = suite_create("fabric_places");
    suite_add_tcase(all, all_tests("tcp", setup));
    suite_add_tcase(all, all_tests("tcp with movers", setup_movers));
    suite_add_tcase(all, all_tests("two rails", setup_rails));
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
