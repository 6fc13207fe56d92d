/* tests/unit/client/lib/unload_test.c - libsluice stays in the process: its own threads may still
 * run when a program that loaded it closes it. */
#include <check.h>
#include <dlfcn.h>

START_TEST(libsluice_is_not_unloaded)
    {
        void *library = dlopen(LIBSLUICE, RTLD_NOW | RTLD_LOCAL);
        ck_assert_msg(library != NULL, "%s", dlerror());
        void *code = dlsym(library, "sl_client_open");
        Dl_info where;
        ck_assert_ptr_nonnull(code);
        ck_assert_int_eq(dlclose(library), 0);
        ck_assert_msg(dladdr(code, &where) != 0, "its code is gone");
        void *still = dlopen(LIBSLUICE, RTLD_NOW | RTLD_NOLOAD);
        ck_assert_msg(still != NULL, "%s", dlerror());
        (void)dlclose(still);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("unload");
    TCase *test_case = tcase_create("unload");
    tcase_add_test(test_case, libsluice_is_not_unloaded);
    suite_add_tcase(suite, test_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
