/* tests/fault/thrash_history.c - the shared file of acknowledged operations, and the functions that
 * compute the right bytes of a key. */
#include "client/tools/bench/replay_content.h"
#include "tests/fault/thrash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMMON_BLOCKS 2u /* shared by eight chats, like a system prompt */
#define COMMON_CHATS  8u

uint64_t thrash_random(struct thrash_random *random)
{
    uint64_t z = (random->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t thrash_below(struct thrash_random *random, uint64_t limit)
{
    return thrash_random(random) % limit;
}

static sl_err shared_map(const char *path, int flags, struct thrash_shared **out,
                         struct sl_error *why)
{
    SL_AUTO(close) int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    if ((flags & O_CREAT) != 0 && ftruncate(fd, sizeof(struct thrash_shared)) != 0) {
        return sl_fail_os(why, errno, "'%s' of %zu bytes", path, sizeof(struct thrash_shared));
    }
    void *base =
        mmap(NULL, sizeof(struct thrash_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return sl_fail_os(why, errno, "map '%s'", path);
    }
    *out = base;
    return SL_OK;
}

sl_err thrash_shared_create(const char *path, struct thrash_shared **out, struct sl_error *why)
{
    return shared_map(path, O_CREAT | O_EXCL, out, why);
}

sl_err thrash_shared_open(const char *path, struct thrash_shared **out, struct sl_error *why)
{
    return shared_map(path, 0, out, why);
}

static const struct {
    const char *name;
    bool must_be_zero;
} counters[] = {
#define COUNTER_ROW(name, zero) {#name, (zero) != 0},
    THRASH_COUNTERS(COUNTER_ROW)};

const char *thrash_counter_name(enum thrash_counter counter)
{
    return counters[counter].name;
}

bool thrash_counter_must_be_zero(enum thrash_counter counter)
{
    return counters[counter].must_be_zero;
}

uint64_t thrash_sum(const struct thrash_shared *shared, enum thrash_counter counter)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < THRASH_WORKERS_MAX; i++) {
        sum += atomic_load_explicit(&shared->workers[i].counters[counter], memory_order_relaxed);
    }
    return sum;
}

/* ---- objects ---- */

struct sl_object_key thrash_key(uint32_t object, char text[32])
{
    int length = snprintf(text, 32, "thrash/%u", object);
    return (struct sl_object_key){.at = text, .length = (uint32_t)length};
}

static uint64_t value_seed(uint32_t object, uint64_t version)
{
    struct thrash_random random = {.state = (uint64_t)object << 32 ^ version};
    return thrash_random(&random);
}

/* Mostly small, rarely large, of any length. */
uint64_t thrash_value_bytes(uint32_t object, uint64_t version)
{
    struct thrash_random random = {.state = value_seed(object, version)};
    uint64_t kind = thrash_below(&random, 100);
    uint64_t most = kind < 60 ? 4 * SL_KIB : kind < 92 ? 32 * SL_KIB : 256 * SL_KIB;
    if (kind == 99) {
        most = THRASH_VALUE_BYTES;
    }
    return 1 + thrash_below(&random, most);
}

void thrash_value_fill(uint32_t object, uint64_t version, uint64_t *value, uint64_t length_bytes)
{
    replay_part(value_seed(object, version), 0, 0, value, length_bytes);
}

/* ---- chats ---- */

uint32_t thrash_block(uint32_t chat, uint32_t number)
{
    uint32_t owner = number < COMMON_BLOCKS ? chat - chat % COMMON_CHATS : chat;
    return owner * THRASH_CHAT_BLOCKS + number;
}

void thrash_tokens(uint32_t chat, uint32_t block_count, uint32_t *tokens)
{
    for (uint32_t i = 0; i < block_count; i++) {
        uint32_t hash_id = thrash_block(chat, i);
        replay_tokens(&hash_id, 1, THRASH_TOKENS, THRASH_TOKENS, &tokens[i * THRASH_TOKENS]);
    }
}
