/* tests/support/fake_cuda_images.c - kernel images on the fake driver, which loads what a real
 * driver of its number loads. Machine code needs the right ELF ABI and architecture, PTX a version
 * no later than the driver's (PTX ISA, "Release Notes"). */
#include "tests/support/fake_cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC UINT32_C(0xba55ed50)
#define FATBIN_PTX   1u
#define FATBIN_CODE  2u
#define CUDA_MACHINE 190u
#define OSABI_OLD    0x33u /* of toolkits before about 12.8: the architecture is stored elsewhere */
#define ABI_NEW      8u    /* toolkit 13 */

struct image {
    const unsigned char *data;
    size_t length;
};

static uint64_t number_at(const unsigned char *at, size_t width)
{
    uint64_t value = 0;
    memcpy(&value, at, width);
    return value;
}

/* ---- settings ---- */

int fake_setting(const char *name, int set, int usual)
{
    const char *text = getenv(name);
    return set != 0 ? set : text != NULL ? atoi(text) : usual;
}

int fake_number(void)
{
    return fake_setting("FAKE_CUDA_NUMBER", fake_state.number, FAKE_CUDA_DRIVER);
}

int fake_capability(void)
{
    return fake_setting("FAKE_CUDA_CAPABILITY", fake_state.capability, FAKE_CUDA_CAPABILITY);
}

/* ---- what may be loaded ---- */

/* Ten times the latest PTX version that a driver of this number compiles. */
static int ptx_latest(int number)
{
    static const struct {
        int number, ptx;
    } table[] = {{13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84},
                 {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11000, 70}};
    for (size_t i = 0; i < SL_COUNT(table); i++) {
        if (number >= table[i].number) {
            return table[i].ptx;
        }
    }
    return 65;
}

static sl_cu_result ptx_check(const char *text)
{
    int major = 0, minor = 0, target = 0;
    const char *version = strstr(text, ".version "), *wanted = strstr(text, ".target sm_");
    if (version == NULL || wanted == NULL ||
        sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
        sscanf(wanted, ".target sm_%d", &target) != 1) {
        return SL_CU_INVALID_PTX;
    }
    if (10 * major + minor > ptx_latest(fake_number())) {
        return SL_CU_UNSUPPORTED_PTX;
    }
    return target <= fake_capability() ? 0 : SL_CU_NO_BINARY;
}

static sl_cu_result code_check(const unsigned char *code)
{
    uint64_t flags = number_at(code + 48, 4);
    int capability = (int)(code[7] == OSABI_OLD ? flags & 0xff : flags >> 8 & 0xff);
    if (number_at(code + 18, 2) != CUDA_MACHINE || (code[8] >= ABI_NEW && fake_number() < 13000) ||
        (capability >= 100 && fake_number() < 12080) ||
        (capability > 86 && fake_number() < 11080)) {
        return SL_CU_INVALID_IMAGE;
    }
    return capability / 10 == fake_capability() / 10 && capability <= fake_capability()
               ? 0
               : SL_CU_NO_BINARY;
}

/* Looks for machine code that fits, else PTX. */
static sl_cu_result fatbin_check(const unsigned char *image, size_t *length)
{
    size_t at = number_at(image + 6, 2);
    sl_cu_result ptx = SL_CU_NO_BINARY;
    *length = at + number_at(image + 8, 8);
    while (at + 64 <= *length) {
        const unsigned char *entry = image + at;
        const unsigned char *payload = entry + number_at(entry + 4, 4);
        if (number_at(entry, 2) == FATBIN_CODE && code_check(payload) == 0) {
            return 0;
        }
        if (number_at(entry, 2) == FATBIN_PTX) {
            ptx = ptx_check((const char *)payload);
        }
        at += number_at(entry + 4, 4) + number_at(entry + 8, 8);
    }
    return ptx;
}

static sl_cu_result image_check(const unsigned char *image, size_t *length)
{
    if (number_at(image, 4) == FATBIN_MAGIC) {
        return fatbin_check(image, length);
    }
    if (memcmp(image,
               "\x7f"
               "ELF",
               4) == 0) {
        *length = number_at(image + 40, 8) + number_at(image + 58, 2) * number_at(image + 60, 2);
        return code_check(image);
    }
    *length = strlen((const char *)image);
    return strcmp((const char *)image, FAKE_CUDA_IMAGE) == 0 ? 0 : ptx_check((const char *)image);
}

/* ---- the calls ---- */

sl_cu_result fake_module_load(sl_cu_module *module, const void *image)
{
    TAKES();
    struct image found = {.data = image};
    if (!fake_current || image == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    sl_cu_result result = image_check(image, &found.length);
    if (result != 0) {
        return result;
    }
    struct image *kept = malloc(sizeof(*kept));
    *kept = found;
    fake_state.modules++;
    *module = kept;
    return 0;
}

sl_cu_result fake_module_unload(sl_cu_module module)
{
    GIVES();
    free(module);
    fake_state.modules--;
    return result;
}

sl_cu_result fake_module_function(sl_cu_function *function, sl_cu_module module, const char *name)
{
    static const char *const names[] = {SL_KERNEL_GATHER, SL_KERNEL_SCATTER, SL_KERNEL_HASH,
                                        SL_KERNEL_HASH_RUNS};
    const struct image *image = module;
    TAKES();
    bool any = strcmp((const char *)image->data, FAKE_CUDA_IMAGE) == 0;
    if (!any && memmem(image->data, image->length, name, strlen(name)) == NULL) {
        return SL_CU_NO_SYMBOL;
    }
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            memcpy(function, &names[i], sizeof(*function));
            return 0;
        }
    }
    return SL_CU_NO_SYMBOL;
}
