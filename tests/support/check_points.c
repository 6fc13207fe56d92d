/* tests/support/check_points.c - Check's note of where a test is, for a fraction of its price.
 *
 * Each assertion that holds tells Check so, by a write to a file: 5 us, which in loops was half of
 * the time of all unit suites. What is told serves a report of a crash or a hang alone ("after this
 * point"): an assertion that fails names its own line. So a place is told when a test comes to it
 * first, and every so often afterwards. Programs of sl_test have it (--wrap). */
#include <stdatomic.h>
#include <stdint.h>

#define PLACES \
    4096u /* by line: lines of two files that meet there are told more often than need be */
#define AGAIN 1024u /* so many calls later, wherever they were */

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

static const char *_Atomic told[PLACES];
static _Atomic uint32_t calls;

void __wrap__mark_point(const char *file, int line)
{
    const char *_Atomic *place = &told[(uint32_t)line % PLACES];
    if (atomic_load_explicit(place, memory_order_relaxed) == file &&
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % AGAIN != AGAIN - 1) {
        return;
    }
    atomic_store_explicit(place, file, memory_order_relaxed);
    __real__mark_point(file, line);
}
