/* tests/unit/client/mooncake/store_ceiling_test.c - the rest of an incomplete batch is read, while
 * values arrive, and not forever. */
#include "client/mooncake/store/internal.h"

#include <check.h>
#include <stdlib.h>
#include <time.h>

#define KEYS    100u
#define CALL_NS SL_NS_PER_S
#define READ_NS (9 * CALL_NS / 10)

/* The node: each answer takes time, and a call for many values brings only the first. */
static uint64_t now_ns, read_ns;
static uint32_t asked;
static sl_err answer;
static char bytes[1];

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    out->tv_sec = (time_t)(now_ns / SL_NS_PER_S);
    out->tv_nsec = (long)(now_ns % SL_NS_PER_S);
    return 0;
}

sl_err __wrap_sl_get_pinned_batch(struct sl_client *client, const struct sl_object_key *keys,
                                  struct sl_view *views, uint32_t count, sl_err *codes,
                                  uint64_t timeout_ns, struct sl_error *why);
sl_err __wrap_sl_get_pinned_batch(struct sl_client *client, const struct sl_object_key *keys,
                                  struct sl_view *views, uint32_t count, sl_err *codes,
                                  uint64_t timeout_ns, struct sl_error *why)
{
    (void)client, (void)keys, (void)timeout_ns, (void)why;
    now_ns += CALL_NS;
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = i == 0 ? SL_OK : SL_ERR_TIMEOUT;
    }
    views[0] = (struct sl_view){.at = bytes, .length_bytes = sizeof bytes};
    return SL_OK;
}

sl_err __wrap_sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                            uint64_t timeout_ns, struct sl_error *why);
sl_err __wrap_sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                            uint64_t timeout_ns, struct sl_error *why)
{
    (void)client, (void)key, (void)timeout_ns, (void)why;
    now_ns += read_ns;
    asked++;
    *out = (struct sl_view){.at = bytes, .length_bytes = sizeof bytes};
    return answer;
}

sl_err __wrap_sl_getv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
                      bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
                      struct sl_error *why);
sl_err __wrap_sl_getv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
                      bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
                      struct sl_error *why)
{
    (void)client, (void)items, (void)whole, (void)timeout_ns, (void)why;
    now_ns += read_ns;
    asked++;
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = i == 0 ? SL_OK : SL_ERR_TIMEOUT;
        lengths[i] = sizeof bytes;
    }
    return SL_OK;
}

static struct store_base base;
static struct sl_store store;
static struct sl_object_key keys[KEYS];
static char names[KEYS][8];

static void setup(void)
{
    base = (struct store_base){.refs = 1, .call_ns = CALL_NS};
    store = (struct sl_store){.base = &base};
    ck_assert_int_eq(pthread_mutex_init(&store.lock, NULL), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        int length = snprintf(names[i], sizeof names[i], "k%u", i);
        keys[i] = (struct sl_object_key){.at = names[i], .length = (uint32_t)length};
    }
    now_ns = SL_NS_PER_S;
    asked = 0;
}

/* Returns the number of values that arrived. */
static uint32_t hold(void)
{
    struct sl_store_buffer *buffers[KEYS];
    int codes[KEYS];
    uint32_t came = 0;
    sl_store_hold(&store, keys, KEYS, buffers, codes);
    for (uint32_t i = 0; i < KEYS; i++) {
        came += codes[i] == SL_STORE_OK ? 1 : 0;
        sl_store_buffer_release(&buffers[i]);
    }
    return came;
}

START_TEST(values_that_come_slowly_are_pinned_until_the_ceiling)
    {
        answer = SL_OK;
        read_ns = READ_NS;
        ck_assert_uint_eq(hold(), 11); /* 1 s for the first, and 10 times 0.9 s */
        ck_assert_uint_eq(asked, 10);
    }
END_TEST

static const struct {
    sl_err answer;
    uint32_t asked;
} answers[] = {
    {SL_OK, KEYS - 1},       {SL_ERR_NOT_FOUND, KEYS - 1}, {SL_ERR_TIMEOUT, 1},
    {SL_ERR_UNREACHABLE, 1}, {SL_ERR_NO_SPACE, 1},         {SL_ERR_PEER_DIED, 1},
};

START_TEST(only_an_answer_lets_the_next_one_be_asked_for)
    {
        answer = answers[_i].answer;
        read_ns = 0;
        uint32_t came = hold();
        ck_assert_uint_eq(asked, answers[_i].asked);
        ck_assert_uint_eq(came, answer == SL_OK ? KEYS : 1);
    }
END_TEST

START_TEST(values_that_come_slowly_are_copied_until_the_ceiling)
    {
        struct sl_iov_list items[KEYS];
        struct sl_iov pieces[KEYS];
        char into[KEYS];
        int64_t results[KEYS];
        for (uint32_t i = 0; i < KEYS; i++) {
            pieces[i] = (struct sl_iov){.at = &into[i], .length_bytes = 1};
            items[i] = (struct sl_iov_list){.key = keys[i], .at = &pieces[i], .count = 1};
        }
        read_ns = READ_NS;
        uint64_t lengths[KEYS];
        sl_store_read(&store, items, KEYS, SL_STORE_WHOLE, results, lengths);
        ck_assert_uint_eq(asked, 12); /* the last one began after 9.9 s */
        for (uint32_t i = 0; i < KEYS; i++) {
            ck_assert_int_eq(results[i], i < 12 ? 1 : SL_STORE_RPC_TIMEOUT);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_ceiling");
    TCase *tcase = tcase_create("store_ceiling");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, values_that_come_slowly_are_pinned_until_the_ceiling);
    tcase_add_loop_test(tcase, only_an_answer_lets_the_next_one_be_asked_for, 0,
                        (int)SL_COUNT(answers));
    tcase_add_test(tcase, values_that_come_slowly_are_copied_until_the_ceiling);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
