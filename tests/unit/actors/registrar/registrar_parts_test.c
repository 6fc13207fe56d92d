/* tests/unit/actors/registrar/registrar_parts_test.c - the table of parts: names, order, messages,
 * calls, notes. */
#include "actors/registrar/parts.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct registrar *registrar_made(void)
{
    struct registrar *self = calloc(1, sizeof(*self));
    ck_assert_ptr_nonnull(self);
    ck_assert_int_eq(reg_parts_create(self, NULL), SL_OK);
    return self;
}

static void registrar_end(struct registrar *self)
{
    reg_parts_destroy(self);
    free(self);
}

START_TEST(each_part_has_a_name_of_its_own)
    {
        for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
            ck_assert_ptr_nonnull(reg_parts[i]->name);
            for (uint32_t k = 0; k < i; k++) {
                ck_assert_str_ne(reg_parts[i]->name, reg_parts[k]->name);
            }
        }
    }
END_TEST

START_TEST(each_state_is_zeroed_and_stands_where_its_row_says)
    {
        struct registrar *self = registrar_made();
        for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
            const unsigned char *state = NULL;
            memcpy(&state, (const char *)self + reg_parts[i]->state_at, sizeof(state));
            for (size_t k = 0; k < reg_parts[i]->state_bytes; k++) {
                ck_assert_uint_eq(state[k], 0);
            }
        }
        registrar_end(self);
    }
END_TEST

/* Required orders of the table. */
static const struct {
    enum reg_walk walk;
    const char *first, *second;
} orders[] = {
    {REG_WALK_TICK, "accesses", "promotion"}, /* before anything is chosen by recency */
    {REG_WALK_TICK, "peers", "reservations"},
    {REG_WALK_TICK, "reservations", "fences"},
    {REG_WALK_TICK, "promotion", "retired"},
    {REG_WALK_AFTER, "populate", "contributions"},
    {REG_WALK_AFTER, "fences", "charges"},
    {REG_WALK_AFTER, "charges", "promotion"},
    {REG_WALK_AFTER, "promotion", "space_queue"}, /* loads have priority over waiting stores */
    {REG_WALK_AFTER, "reclaim", "space_queue"},
    {REG_WALK_AFTER, "space_queue", "admission"},
    {REG_WALK_AFTER, "admission", "writes"},
    {REG_WALK_AFTER, "members", "writes"}, /* disks are notified of a change first */
    {REG_WALK_AFTER, "removes", "forgets"},
    {REG_WALK_AFTER, "forgets", "flushes"},
    {REG_WALK_RECOVERED, "peers", "engines"},
    {REG_WALK_RECOVERED, "engines", "pools"},
    {REG_WALK_RECOVERED, "pools", "contributions"},
    {REG_WALK_RECOVERED, "contributions", "groups"},
    {REG_WALK_RECOVERED, "groups", "retired"}, /* released by all of these */
    {REG_WALK_ARRIVED, "fences", "disks"},
    {REG_WALK_LEFT, "space_queue", "groups"}, /* requests, what was being written, the disk */
    {REG_WALK_LEFT, "answers", "groups"},
    {REG_WALK_LEFT, "groups", "claims"},
    {REG_WALK_LEFT, "claims", "disks"},
    {REG_WALK_LEFT, "disks", "fences"},
    {REG_WALK_DIED, "engines", "pools"},
    {REG_WALK_DIED, "contributions", "retired"},
    {REG_WALK_COMMITTED, "holds", "admission"}, /* a hold, before any eviction */
    {REG_WALK_COMMITTED, "holds", "transients"},
    {REG_WALK_COMMITTED, "holds", "evict"},
    {REG_WALK_SWITCHED, "charges", "segments"},
    {REG_WALK_SWITCHED, "segments", "admission"},
};

static uint32_t position(const struct registrar *self, enum reg_walk walk, const char *name)
{
    uint32_t at = 0;
    REG_EACH(self, walk, part)
    {
        if (strcmp((*part)->name, name) == 0) {
            return at;
        }
        at++;
    }
    ck_abort_msg("%s takes no part in walk %u", name, walk);
    return at;
}

START_TEST(each_walk_goes_in_its_order)
    {
        struct registrar *self = registrar_made();

        ck_assert_msg(position(self, orders[_i].walk, orders[_i].first) <
                          position(self, orders[_i].walk, orders[_i].second),
                      "%s before %s", orders[_i].first, orders[_i].second);
        registrar_end(self);
    }
END_TEST

START_TEST(each_call_has_somebody_who_hears_the_reply)
    {
        struct registrar *self = registrar_made();
        for (uint32_t kind = REG_CALL_FENCE; kind < REG_CALL_COUNT; kind++) {
            ck_assert_ptr_nonnull(self->walks->calls[kind]);
            ck_assert(self->walks->calls[kind]->reply != NULL);
        }
        registrar_end(self);
    }
END_TEST

START_TEST(each_note_has_one_owner)
    {
        uint32_t owners[REG_BLOB_TAGS] = {0};
        for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
            for (uint32_t k = 0; k < reg_parts[i]->blob_count; k++) {
                ck_assert_uint_lt(reg_parts[i]->blobs[k].tag, SL_COUNT(owners));
                owners[reg_parts[i]->blobs[k].tag]++;
            }
        }
        for (uint32_t tag = REG_BLOB_PEER; tag < SL_COUNT(owners); tag++) {
            ck_assert_uint_eq(owners[tag], 1);
        }
    }
END_TEST

START_TEST(each_metric_is_defined_once)
    {
        for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
            for (uint32_t k = 0; k < reg_parts[i]->metric_count; k++) {
                uint32_t count = 0;
                const struct sl_metric_row *metric = &reg_parts[i]->metrics[k];
                ck_assert_uint_le(metric->at + sizeof(sl_metric), reg_parts[i]->state_bytes);
                for (uint32_t j = 0; reg_parts[j] != NULL; j++) {
                    for (uint32_t n = 0; n < reg_parts[j]->metric_count; n++) {
                        count += strcmp(reg_parts[j]->metrics[n].name, metric->name) == 0;
                    }
                }
                ck_assert_uint_eq(count, 1);
            }
        }
    }
END_TEST

static Suite *parts_suite(void)
{
    Suite *suite = suite_create("registrar_parts");
    TCase *parts = tcase_create("parts");
    tcase_add_test(parts, each_part_has_a_name_of_its_own);
    tcase_add_test(parts, each_state_is_zeroed_and_stands_where_its_row_says);
    tcase_add_loop_test(parts, each_walk_goes_in_its_order, 0, (int)SL_COUNT(orders));
    tcase_add_test(parts, each_call_has_somebody_who_hears_the_reply);
    tcase_add_test(parts, each_note_has_one_owner);
    tcase_add_test(parts, each_metric_is_defined_once);
    suite_add_tcase(suite, parts);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(parts_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
