/* tests/support/check_points.c - makes Check's record of a test's position cheap.
 *
 * Check writes each passed assertion to a file: 5 us, which in loops was half of the time of all
 * unit suites. The record only serves the report of a crash or a hang ("after this point"); a
 * failed assertion names its own line. So a position is recorded when a test first reaches it, and
 * every AGAIN calls. Programs of sl_test have it (--wrap). */
#include <stdatomic.h>
#include <stdint.h>

#define PLACES \
    4096u /* by line number; lines of two files that share an entry are recorded more often */
#define AGAIN 1024u /* calls between two records */

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
