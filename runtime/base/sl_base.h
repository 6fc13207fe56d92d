/* runtime/base/sl_base.h - small macros that every file may use. */
#ifndef SL_BASE_H
#define SL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define SL_KIB (UINT64_C(1) << 10)
#define SL_MIB (UINT64_C(1) << 20)
#define SL_GIB (UINT64_C(1) << 30)

#define SL_NS_PER_US UINT64_C(1000)
#define SL_NS_PER_MS UINT64_C(1000000)
#define SL_NS_PER_S  UINT64_C(1000000000)
#define SL_KEEP_NS_MAX \
    (7 * 86400 * SL_NS_PER_S) /* a week: the longest retention that a hint may ask for */

/* Largest key of an object, without the terminating zero. */
#define SL_KEY_BYTES_MAX 1024u
/* Largest value, and largest chunk of an arena. */
#define SL_VALUE_BYTES_MAX SL_GIB
/* Granularity of extents, disk records and prefaulting. */
#define SL_PAGE_BYTES       4096u
#define SL_CACHE_LINE_BYTES 64u

#define SL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Rounds up to a multiple of align (a power of two). The caller excludes overflow. */
static inline uint64_t sl_align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* Checks what only a bug of Sluice can break, in all builds; aborts with file and line. */
#define SL_ASSERT(condition)                                            \
    do {                                                                \
        if (!(condition)) {                                             \
            sl_assert_failed(#condition, __FILE__, __LINE__, __func__); \
        }                                                               \
    } while (0)
__attribute__((noreturn)) void sl_assert_failed(const char *condition, const char *file, int line,
                                                const char *function);

/* Compares in constant time: for secrets. */
bool sl_same_bytes(const void *a, const void *b, size_t length_bytes);

/* Scoped clean-up: SL_AUTO(free) char *path = ...; SL_TAKE(path) keeps the value. SL_AUTO(fn) needs
 * `static inline void sl_auto_fn(void *at)`; those of the C library follow. */
#define SL_AUTO(fn) __attribute__((cleanup(sl_auto_##fn), unused))
#define SL_TAKE(pointer)                          \
    __extension__({                               \
        __typeof__(pointer) sl_taken = (pointer); \
        (pointer) = NULL;                         \
        sl_taken;                                 \
    })
void sl_auto_free(void *at); /* at: address of a pointer; also for fclose and closedir */
void sl_auto_fclose(void *at);
void sl_auto_closedir(void *at);
void sl_auto_close(void *at); /* at: address of a descriptor; -1: none */

#define SL_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))

#endif
