/* tests/unit/actors/transporter/transporter_test.c - settings that stop the transporter's start;
 * its NICs. */
#include "actors/transporter/regions/regions.h"
#include "actors/transporter/transporter.h"
#include "tests/unit/ipc/msg/stepped_env.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct stepped bed;
static char *shm_dir;

static void setup(void)
{
    shm_dir = shm_dir_make();
    unsetenv("MC_MAX_MR_SIZE");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void teardown(void)
{
    shm_dir_remove(shm_dir);
}

START_TEST(bad_surroundings_stop_the_start)
    {
        static const char *const settings[] = {"nic", "mlx5_0,,mlx5_2", "fabric", "verbs", NULL};
        static const char *const second[] = {"rank", "1", NULL};
        struct sl_error why = {0};

        stepped_start(&bed, &sl_transporter_actor, shm_dir, settings, false);
        ck_assert_int_eq(sl_transporter_actor.init(bed.state, &bed.env, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "entry 1") != NULL, "%s", why.text);
        stepped_end(&bed);

        stepped_start(&bed, &sl_transporter_actor, shm_dir, second, false);
        ck_assert_int_eq(sl_transporter_actor.init(bed.state, &bed.env, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "one transporter") != NULL, "%s", why.text);
        stepped_end(&bed);

        setenv("MC_MAX_MR_SIZE", "plenty", 1);
        stepped_start(&bed, &sl_transporter_actor, shm_dir, NULL, false);
        ck_assert_int_eq(sl_transporter_actor.init(bed.state, &bed.env, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "MC_MAX_MR_SIZE") != NULL, "%s", why.text);
        stepped_end(&bed);
    }
END_TEST

static const struct {
    const char *name, *value, *why;
    sl_err want;
} fabrics[] = {
    {"fabric", "tcp", "no descriptors", SL_ERR_UNSUPPORTED}, /* of the stepped environment */
    {"directory", "redis", "no descriptors", SL_ERR_UNSUPPORTED},
};
/* The requested NICs; no case depends on those of this machine. */
static const struct {
    const char *settings[9], *nic; /* nic NULL: an error with this text */
    const char *why;
} nics[] = {
    {{"nic", "auto", NULL}, "", NULL}, /* without verbs there need not be any */
    {{"nic", "auto", "fabric", "tcp", NULL}, "", NULL},
    {{"nic", "a,b", "nic_by", "rank", "ranks", "2", NULL}, "", NULL},
    {{"nic", "a,b", "nic_by", "gpu", "ranks", "4", "fabric", "tcp", NULL}, "", NULL},
    {{"nic", "a,b", "nic_by", "rank", "ranks", "4", "fabric", "verbs", NULL}, "a,b", NULL},
    {{"nic", "a", "ranks", "4", "fabric", "verbs", NULL}, "a", NULL},
    {{"ranks", "4", "fabric", "verbs", NULL}, "", NULL},
    {{"nic", "a,b", "ranks", "2", "fabric", "verbs", NULL}, NULL, "is unknown"},
};
START_TEST(nics_are_those_of_all_ranks)
    {
        struct sl_error why = {0};
        unsetenv("CUDA_VISIBLE_DEVICES");
        stepped_start(&bed, &sl_transporter_actor, shm_dir, nics[_i].settings, false);
        struct transporter *self = bed.state;
        self->env = &bed.env;

        sl_err err = tr_nic_choose(self, &why);

        ck_assert_int_eq(err, nics[_i].nic != NULL ? SL_OK : SL_ERR_CONFIG);
        ck_assert_str_eq(self->nic, nics[_i].nic != NULL ? nics[_i].nic : "");
        ck_assert(nics[_i].why == NULL || strstr(why.text, nics[_i].why) != NULL);
        stepped_end(&bed);
    }
END_TEST

START_TEST(what_cannot_be_opened_stops_the_start)
    {
        const char *const settings[] = {fabrics[_i].name, fabrics[_i].value, NULL};
        struct sl_error why = {0};
        stepped_start(&bed, &sl_transporter_actor, shm_dir, settings, false);
        ck_assert_int_eq(sl_transporter_actor.init(bed.state, &bed.env, &why), fabrics[_i].want);
        ck_assert_msg(strstr(why.text, fabrics[_i].why) != NULL, "%s", why.text);
        stepped_end(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter");
    TCase *cases = tcase_create("transporter");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, bad_surroundings_stop_the_start);
    tcase_add_loop_test(cases, nics_are_those_of_all_ranks, 0, SL_COUNT(nics));
    tcase_add_loop_test(cases, what_cannot_be_opened_stops_the_start, 0, SL_COUNT(fabrics));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
