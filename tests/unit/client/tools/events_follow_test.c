/* tests/unit/client/tools/events_follow_test.c - events follow an index within a second, however
 * long a walk of its table takes. */
#include "client/tools/events/follow.h"
#include "runtime/base/sl_clock.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <inttypes.h>

#define BLOCKS 256u
/* As for a table so large that a second allows only three walks. */
#define PAUSE_NS (300 * SL_NS_PER_MS)

struct mirror {
    uint32_t count[EV_MEDIUM_COUNT]; /* blocks */
};

static void take(void *context, const struct ev_event *event)
{
    struct mirror *mirror = context;
    switch (event->type) {
    case EV_STORED:
        mirror->count[event->medium]++;
        break;
    case EV_REMOVED:
        mirror->count[event->medium]--;
        break;
    case EV_CLEARED:
    default:
        *mirror = (struct mirror){0};
        break;
    }
}

static const char *block_key(uint32_t number)
{
    static char key[200];
    (void)snprintf(key, sizeof(key),
                   "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"
                   "0123456789abcdef0123456789abcdef0123456789abcdef%016x",
                   number);
    return key;
}

/* Time is stepped from one wake-up to the next. */
static void follow_until(struct ev_follow *follow, uint64_t *now_ns, uint64_t end_ns,
                         struct mirror *mirror)
{
    while (*now_ns < end_ns) {
        (void)ev_follow_step(follow, *now_ns, take, mirror);
        *now_ns = SL_MAX(*now_ns, ev_follow_wake_at(follow));
    }
}

/* Each is removed and reinserted only on disk, with the same record and the same slot word. */
START_TEST(a_block_back_in_another_tier_is_reported_within_a_second)
    {
        struct bed bed = bed_make(4 * SL_MIB, BLOCKS);
        struct ev_follow *follow = NULL;
        struct mirror mirror = {0};
        uint64_t now_ns = sl_clock_monotonic_ns();
        static sl_ref refs[BLOCKS];
        ck_assert_int_eq(ev_follow_create(bed.dir, "", PAUSE_NS, &follow, NULL), SL_OK);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            refs[i] = bed_insert(&bed, block_key(i), 1 + i);
        }
        follow_until(follow, &now_ns, now_ns + 8 * SL_NS_PER_S, &mirror);
        ck_assert_uint_eq(mirror.count[EV_MEMORY], BLOCKS);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            struct sl_entry entry = entry_of(block_key(i), 1 + i);
            sl_ref ref = 0;
            sl_index_unlink(bed.index, refs[i], SL_RECORD_FREE);
            entry.extent = (struct sl_extent){0};
            entry.disk = (struct sl_disk_place){.offset_bytes = 4096, .segment = 3, .valid = 1};
            ck_assert_int_eq(sl_index_insert(bed.index, &entry, &ref, NULL), SL_OK);
            ck_assert_uint_eq(ref, refs[i]);
        }

        follow_until(follow, &now_ns, now_ns + SL_NS_PER_S, &mirror);

        ck_assert_uint_eq(mirror.count[EV_DISK], BLOCKS);
        ck_assert_uint_eq(mirror.count[EV_MEMORY], 0);
        ev_follow_destroy(&follow);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("follow");
    Suite *suite = suite_create("events_follow");
    tcase_add_test(tcase, a_block_back_in_another_tier_is_reported_within_a_second);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
