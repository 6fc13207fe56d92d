/* tests/unit/runtime/net/gid_test.c - which of a port's addresses is chosen. */
#include "runtime/net/fabric/verbs/gid.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>

static const struct {
    struct {
        const char *text;
        enum sl_gid_kind kind;
    } gids[6];
    int want; /* index; -1: none */
} ports[] = {
    /* The lists of Soft-RoCE and ConnectX: both versions of every address. */
    {{{"fe80::1", SL_GID_ROCE_V1},
      {"fe80::1", SL_GID_ROCE_V2},
      {"::ffff:10.0.0.1", SL_GID_ROCE_V1},
      {"::ffff:10.0.0.1", SL_GID_ROCE_V2}},
     3},
    {{{"2001:db8::1", SL_GID_ROCE_V2}, {"::ffff:10.0.0.1", SL_GID_ROCE_V2}}, 1},
    {{{"::ffff:10.0.0.1", SL_GID_ROCE_V1}, {"2001:db8::1", SL_GID_ROCE_V2}}, 1},
    {{{"::ffff:10.0.0.1", SL_GID_ROCE_V2}, {"::ffff:10.0.0.2", SL_GID_ROCE_V2}}, 0},
    {{{"::ffff:169.254.3.4", SL_GID_ROCE_V2}, {"2001:db8::1", SL_GID_ROCE_V1}}, 1},
    {{{"fe80::1", SL_GID_ROCE_V2}, {"::", SL_GID_ROCE_V2}, {"::ffff:0.0.0.0", SL_GID_ROCE_V2}}, -1},
    {{{"febf::1", SL_GID_ROCE_V2}, {"fec0::1", SL_GID_ROCE_V2}}, 1},
    {{{NULL, SL_GID_ROCE_V2}}, -1},
};

START_TEST(the_address_that_reaches_furthest_is_chosen)
    {
        struct sl_gid gids[SL_COUNT(ports[0].gids)];
        uint32_t count = 0;
        while (count < SL_COUNT(gids) && ports[_i].gids[count].text != NULL) {
            gids[count] = (struct sl_gid){.kind = ports[_i].gids[count].kind, .index = count};
            ck_assert_int_eq(inet_pton(AF_INET6, ports[_i].gids[count].text, gids[count].raw), 1);
            count++;
        }
        const struct sl_gid *chosen = sl_gid_choose(gids, count);
        ck_assert_int_eq(chosen == NULL ? -1 : (int)chosen->index, ports[_i].want);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("gid");
    TCase *tests = tcase_create("gid");
    tcase_add_loop_test(tests, the_address_that_reaches_furthest_is_chosen, 0, SL_COUNT(ports));
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
