import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'

import { useAction } from '~/shared/use-action'
import { SelectField } from '~/ui/Field'

import { chooseOrganization, organizationsQuery, sessionQuery } from './queries'
import { useSessionUser } from './use-session'

/** The organisation that the console acts in, to be changed by who belongs to several; nothing for all others. */
export function OrganizationSwitch() {
  const user = useSessionUser()
  const navigate = useNavigate()
  const queryClient = useQueryClient()
  const { data } = useQuery({ ...organizationsQuery, enabled: user.person !== null })
  const choose = useAction(chooseOrganization, {
    done: 'The console acts in the other organisation now',
    invalidate: [sessionQuery.queryKey],
    onDone: () => {
      // What is on the screen, and what was read before, is of the organisation before.
      void navigate({ to: '/projects' }).then(() =>
        queryClient.resetQueries({ predicate: ({ queryKey }) => queryKey[0] !== sessionQuery.queryKey[0] }),
      )
    },
  })
  if (!data || data.organizations.length < 2) return null
  return (
    <div className="-mb-3 w-36 sm:w-44">
      <SelectField
        label="Organisation"
        compact
        className="truncate"
        value={user.organization_id ?? ''}
        disabled={choose.isPending}
        onChange={(event) => {
          choose.mutate(event.target.value)
        }}
      >
        {data.organizations.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </SelectField>
    </div>
  )
}
