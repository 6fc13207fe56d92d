/* tests/unit/ipc/shm/pins_litmus_test.c - the race that the seq_cst fence of a pin decides, on the
 * processor that runs this.
 *
 * One thread pins an entry (sl_pins_take) while another unlinks it, fences and reads the pin slots.
 * Either the pin is refused or the scan sees it: otherwise both threads would use the bytes, which
 * would be wrong later. The code of ipc/shm/sl_pins.c is built in here with its fences under a
 * switch: with them no run may fail; without them some runs do on most processors, which is printed
 * and not asserted (tests/models/pins.pml proves it). */
#include <stdatomic.h>
#include <stdbool.h>

static _Atomic bool fences_on = true;

static inline void fence_or_not(memory_order order)
{
    if (atomic_load_explicit(&fences_on, memory_order_relaxed)) {
        atomic_thread_fence(order);
    } else {
        atomic_signal_fence(order);
    }
}
#undef atomic_thread_fence
#define atomic_thread_fence(order) fence_or_not(order)
#include "ipc/shm/sl_pins.c"
#undef atomic_thread_fence
#define atomic_thread_fence(order) __atomic_thread_fence(order)

#include "tests/support/own_id.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <pthread.h>

#define ROUNDS      100000
#define SECONDS_MAX 10 /* a loaded machine does fewer rounds */

struct litmus {
    struct bed bed;
    struct sl_pins *pins;
    struct sl_pins_view *pins_view;
    struct sl_entry entry;
    _Atomic uint64_t round, reader_round; /* the threads meet here */
    _Atomic bool stop;
    bool pinned; /* the reader's result, read after the meeting */
    bool seen;
};

/* Lets both threads arrive at nearly the same moment. */
static void meet(_Atomic uint64_t *mine, _Atomic uint64_t *other, uint64_t round,
                 const _Atomic bool *stop)
{
    atomic_store(mine, round);
    for (uint32_t spins = 0; atomic_load(other) < round && !atomic_load(stop); spins++) {
        if (spins > 2000) { /* the other one has no processor */
            sched_yield();
        }
    }
}

static void *litmus_reader(void *argument)
{
    struct litmus *litmus = argument;
    for (uint64_t round = 1; !atomic_load(&litmus->stop); round += 2) {
        sl_pin pin = 0;
        meet(&litmus->reader_round, &litmus->round, round, &litmus->stop);
        if (atomic_load(&litmus->stop)) {
            break;
        }
        litmus->pinned =
            sl_pins_take(litmus->pins, litmus->bed.view, &litmus->entry, &pin) == SL_OK;
        meet(&litmus->reader_round, &litmus->round, round + 1, &litmus->stop);
        sl_pins_release(litmus->pins, pin);
    }
    return NULL;
}

static void litmus_see(void *context, uint64_t generation)
{
    struct litmus *litmus = context;
    litmus->seen = litmus->seen || generation == litmus->entry.extent.generation;
}

/* Returns the number of rounds in which both sides claimed the bytes. */
static uint64_t litmus_run(bool fences, uint64_t *rounds)
{
    struct litmus *litmus = calloc(1, sizeof(*litmus));
    pthread_t reader;
    uint64_t wrong = 0;
    uint64_t pinned = 0;
    uint64_t ends_ns = stopwatch_ns() + SECONDS_MAX * UINT64_C(1000000000);
    litmus->bed = bed_make(SL_MIB, 100);
    struct sl_pins_options options = {.shm_dir = litmus->bed.dir,
                                      .name = "litmus",
                                      .slot_count = 4,
                                      .access_count = 8,
                                      .self = own_id(),
                                      .pinned_bytes_max = SL_GIB};
    must(sl_pins_create(&options, &litmus->pins, NULL) == SL_OK);
    must(sl_pins_view_open(litmus->bed.dir, "pins.litmus", &litmus->pins_view, NULL) == SL_OK);
    /* Used before: noting the first use of a slot would fence by itself. */
    sl_pin first = 0;
    bed_insert(&litmus->bed, "first", 1);
    must(bed_find(&litmus->bed, "first", &litmus->entry) == SL_OK);
    must(sl_pins_take(litmus->pins, litmus->bed.view, &litmus->entry, &first) == SL_OK);
    sl_pins_release(litmus->pins, first);
    atomic_store(&fences_on, fences);
    must(pthread_create(&reader, NULL, litmus_reader, litmus) == 0);
    uint64_t round = 1;
    for (; round < 2 * ROUNDS && stopwatch_ns() < ends_ns; round += 2) {
        struct sl_entry want = entry_of("key", 2 + round);
        sl_ref ref = 0;
        must(sl_index_insert(litmus->bed.index, &want, &ref, NULL) == SL_OK);
        must(bed_find(&litmus->bed, "key", &litmus->entry) == SL_OK);
        litmus->seen = false;
        meet(&litmus->round, &litmus->reader_round, round, &litmus->stop);
        for (volatile uint32_t wait = 0; wait < round / 2 % (round & 2 ? 200 : 1000); wait++) {
        }
        sl_index_unlink(litmus->bed.index, ref, SL_RECORD_RETIRED);
        atomic_thread_fence(memory_order_seq_cst);
        sl_pins_view_scan(litmus->pins_view, litmus_see, litmus);
        bool seen = litmus->seen;
        meet(&litmus->round, &litmus->reader_round, round + 1, &litmus->stop);
        wrong += litmus->pinned && !seen;
        pinned += litmus->pinned;
        sl_index_set_kind(litmus->bed.index, ref, SL_RECORD_FREE);
    }
    atomic_store(&litmus->stop, true);
    pthread_join(reader, NULL);
    atomic_store(&fences_on, true);
    printf("%s fences: %llu rounds, %llu pinned, %llu times both sides were sure\n",
           fences ? "with" : "without", (unsigned long long)(round / 2), (unsigned long long)pinned,
           (unsigned long long)wrong);
    *rounds = round / 2;
    sl_pins_view_close(&litmus->pins_view);
    sl_pins_destroy(&litmus->pins);
    bed_remove(&litmus->bed);
    free(litmus);
    return wrong;
}

START_TEST(a_pin_is_refused_or_seen)
    {
        uint64_t rounds = 0;
        uint64_t wrong = litmus_run(true, &rounds);
        ck_assert_uint_gt(rounds, 0);
        ck_assert_uint_eq(wrong, 0);
        (void)litmus_run(false, &rounds); /* what it would be like */
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("pins_litmus");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, a_pin_is_refused_or_seen);
    return suite_run(tcase, "pins_litmus");
}
