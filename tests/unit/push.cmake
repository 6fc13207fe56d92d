foreach(name push_test push_pools_test)
    sl_test(${name} LABEL unit SOURCES unit/${name}.c unit/push_support.c support/fake_env.c support/fake_net.c LIBS sluice_transporter)
endforeach()
