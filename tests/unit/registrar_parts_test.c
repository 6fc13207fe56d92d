/* tests/unit/registrar_parts_test.c - the table of parts: names, turns, messages, calls, notes. */
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

/* Gives the turn behind this one: by turn, none twice, REG_TURN_ANY behind all others. */
static uint32_t turn_checked(uint32_t before, enum reg_turn turn)
{
    if (turn == REG_TURN_ANY) {
        return UINT32_MAX;
    }
    ck_assert_uint_gt(turn, before);
    return turn;
}

START_TEST(each_walk_goes_by_turn)
    {
        struct registrar *self = registrar_made();
        uint32_t tick = 0, after = 0, recovered = 0, left = 0, died = 0, committed = 0;
        REG_EACH(self, REG_WALK_TICK, part)
        {
            tick = turn_checked(tick, (*part)->tick.turn);
        }
        REG_EACH(self, REG_WALK_AFTER, part)
        {
            after = turn_checked(after, (*part)->after.turn);
        }
        REG_EACH(self, REG_WALK_RECOVERED, part)
        {
            recovered = turn_checked(recovered, (*part)->recovered.turn);
        }
        REG_EACH(self, REG_WALK_LEFT, part)
        {
            left = turn_checked(left, (*part)->left.turn);
        }
        REG_EACH(self, REG_WALK_DIED, part)
        {
            died = turn_checked(died, (*part)->died.turn);
        }
        REG_EACH(self, REG_WALK_COMMITTED, part)
        {
            committed = turn_checked(committed, (*part)->committed.turn);
        }
        ck_assert(tick >= REG_TICK_SCAN && after >= REG_AFTER_FLUSHES);
        ck_assert(recovered >= REG_RECOVERED_RETIRED && left >= REG_LEFT_FENCES);
        ck_assert(died >= REG_DIED_RETIRED && committed >= REG_COMMITTED_TRANSIENTS);
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
    tcase_add_test(parts, each_walk_goes_by_turn);
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
