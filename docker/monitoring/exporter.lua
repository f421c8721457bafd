-- INFO rl as the exporter of Redis metrics wants it: name, value, name, value, ... Give it to redis_exporter with -script; it runs
-- on the server at each scrape and reads no key. A text cannot be a metric: the version becomes 10203 for 1.2.3, as in MODULE LIST.
local values = {}
for name, value in string.gmatch(redis.call('INFO', 'rl'), '(rl_[%l_]+):(%S+)') do
    local major, minor, patch = string.match(value, '^(%d+)%.(%d+)%.(%d+)')
    if major then
        value = string.format('%d', major * 10000 + minor * 100 + patch)
    end
    values[#values + 1] = name
    values[#values + 1] = value
end
-- Without the module, INFO has no such section. This one is always there, so that its absence means that nobody asked.
values[#values + 1] = 'rl_module_loaded'
values[#values + 1] = #values > 1 and '1' or '0'
return values
