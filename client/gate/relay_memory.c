/* client/gate/relay_memory.c - see relay_memory.h. */
#include "client/gate/relay_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Other descriptors of this process are the lowest that are free: they do not come so far. */
#define FIRST_FD         256
#define STAT_BLOCK_BYTES 512u

int relay_memory_fd(uint32_t number)
{
    return FIRST_FD + (int)number;
}

/* Nothing that could be mapped has the number then. */
static sl_err number_keep(uint32_t number, struct sl_error *why)
{
    SL_AUTO(close) int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0 && dup3(nothing, relay_memory_fd(number), O_CLOEXEC) >= 0) {
        return SL_OK;
    }
    /* EBADF: the number is beyond what the process may have. */
    return errno == EMFILE || errno == ENFILE || errno == EBADF
               ? sl_fail(why, SL_ERR_LIMIT,
                         "no descriptors for memory of engines: %u are needed (ulimit -n)",
                         (unsigned)FIRST_FD + SL_GATE_RELAY_MEMORIES_MAX)
               : sl_fail_os(why, errno, "descriptors for memory");
}

sl_err relay_memories_open(struct relay_memories *self, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < SL_GATE_RELAY_MEMORIES_MAX && err == SL_OK; i++) {
        self->all[i] = (struct relay_memory){0};
        err = fcntl(relay_memory_fd(i), F_GETFD) < 0
                  ? number_keep(i, why)
                  : sl_fail(why, SL_ERR_LIMIT,
                            "descriptor %d, which is for memory of engines, is open",
                            relay_memory_fd(i));
    }
    return err;
}

/* Whoever may write it already gives away nothing; what keeps its size, and needs no reservation for its
 * pages, can be mapped without fear of a signal. Its pages are the client's, who may give them back later:
 * then they are whose process touches them. Errors: SL_ERR_UNSUPPORTED. */
static sl_err memory_check(int fd, uint64_t *length_bytes, struct sl_error *why)
{
    struct stat file;
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    if (seals < 0 || flags < 0 || fstat(fd, &file) != 0 || fstatfs(fd, &system) != 0 ||
        !S_ISREG(file.st_mode) || system.f_type != TMPFS_MAGIC || file.st_size <= 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "what was lent is no memory: a memfd without huge pages of its own");
    }
    if ((flags & O_ACCMODE) != O_RDWR || (flags & O_PATH) != 0 ||
        (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "memory that was lent may not be written");
    }
    if ((seals & F_SEAL_SHRINK) == 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "memory that was lent may be cut short: it is to be sealed (F_SEAL_SHRINK)");
    }
    /* Not SEEK_HOLE, to which pages that nobody wrote yet are holes. */
    if ((uint64_t)file.st_blocks * STAT_BLOCK_BYTES < (uint64_t)file.st_size) {
        return sl_fail(
            why, SL_ERR_UNSUPPORTED,
            "memory that was lent has holes: its pages are to be taken first (fallocate)");
    }
    *length_bytes = (uint64_t)file.st_size;
    return SL_OK;
}

bool relay_memory_lend(struct relay_memories *self, uint32_t number, int fd)
{
    SL_AUTO(close) int lent = fd;
    if (number >= SL_GATE_RELAY_MEMORIES_MAX || lent < 0 ||
        self->all[number].state != RELAY_MEMORY_NONE) {
        return false;
    }
    struct relay_memory *memory = &self->all[number];
    uint64_t length_bytes = 0;
    sl_err err = memory_check(lent, &length_bytes, &memory->why);
    if (err == SL_OK &&
        !shares_take(&self->shares, SHARE_POOL_BYTES, length_bytes, self->bytes_max, false)) {
        err = sl_fail(&memory->why, SL_ERR_LIMIT,
                      "engines of a user have %" PRIu64
                      " bytes of memory at most (clients_pool_bytes_max)",
                      self->bytes_max);
    } else if (err == SL_OK && dup3(lent, relay_memory_fd(number), O_CLOEXEC) < 0) {
        err = sl_fail_os(&memory->why, errno, "descriptor of memory");
        shares_let(&self->shares, SHARE_POOL_BYTES, length_bytes);
    }
    memory->state = err == SL_OK ? RELAY_MEMORY_LENT : RELAY_MEMORY_REFUSED;
    memory->length_bytes = err == SL_OK ? length_bytes : 0;
    return true;
}

static void memory_end(struct relay_memories *self, uint32_t number)
{
    struct relay_memory *memory = &self->all[number];
    if (memory->state == RELAY_MEMORY_LENT) {
        shares_let(&self->shares, SHARE_POOL_BYTES, memory->length_bytes);
        (void)number_keep(number, NULL);
    }
    *memory = (struct relay_memory){0};
}

void relay_memory_forget(struct relay_memories *self, uint32_t number, uint64_t in_use)
{
    if (number < SL_GATE_RELAY_MEMORIES_MAX) {
        self->all[number].forgotten = self->all[number].state != RELAY_MEMORY_NONE;
        relay_memories_let(self, in_use);
    }
}

void relay_memories_let(struct relay_memories *self, uint64_t in_use)
{
    for (uint32_t i = 0; i < SL_GATE_RELAY_MEMORIES_MAX; i++) {
        if (self->all[i].forgotten && (in_use >> i & 1) == 0) {
            memory_end(self, i);
        }
    }
}
