package client

import (
	"context"
	"errors"
	"net/http"
)

// Organization is an organisation as the API shows it.
type Organization struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	CreatedAt string `json:"created_at"`
}

// Member is a person's membership of an organisation.
type Member struct {
	ID       string `json:"id"`
	UserID   string `json:"user_id"`
	OrgID    string `json:"org_id"`
	Role     string `json:"role"`
	JoinedAt string `json:"joined_at"`
}

// Person is who a member is.
type Person struct {
	Email string `json:"email"`
	Name  string `json:"name"`
}

// MemberPerson is a membership with the person who has it.
type MemberPerson struct {
	Member Member `json:"member"`
	User   Person `json:"user"`
}

// Organization reads an organisation; the one that the key is of where no id is given.
func (c *Client) Organization(ctx context.Context, id string) (*Organization, error) {
	if id != "" {
		var found Organization
		return &found, c.Call(ctx, http.MethodGet, Path("organizations", id), nil, &found)
	}
	var mine struct {
		Organizations []Organization `json:"organizations"`
	}
	if err := c.Call(ctx, http.MethodGet, Path("users", "me", "organizations"), nil, &mine); err != nil {
		return nil, err
	}
	if len(mine.Organizations) != 1 {
		return nil, errors.New("the key is not of one organization alone; give the organization's id")
	}
	return &mine.Organizations[0], nil
}

// KeptOrganization is an organisation as those who run the installation see it.
type KeptOrganization struct {
	Organization
	Email string `json:"email"`
}

// CreateOrganization makes an organisation, for a key of operators. Of the fields "owner" is the email of a person whom
// the installation knows.
func (c *Client) CreateOrganization(ctx context.Context, fields Fields) (*KeptOrganization, error) {
	var made KeptOrganization
	return &made, c.Call(ctx, http.MethodPost, Path("fleet", "organizations"), fields, &made)
}

// KeptOrganization reads any organisation, for a key of operators.
func (c *Client) KeptOrganization(ctx context.Context, id string) (*KeptOrganization, error) {
	var found KeptOrganization
	return &found, c.Call(ctx, http.MethodGet, Path("fleet", "organizations", id), nil, &found)
}

// ChangeOrganization changes an organisation, for a key of operators.
func (c *Client) ChangeOrganization(ctx context.Context, id string, fields Fields) (*KeptOrganization, error) {
	var changed KeptOrganization
	return &changed, c.Call(ctx, http.MethodPatch, Path("fleet", "organizations", id), fields, &changed)
}

// DeleteOrganization ends an organisation, for a key of operators. One that does not exist is no error.
func (c *Client) DeleteOrganization(ctx context.Context, id string) error {
	err := c.Call(ctx, http.MethodDelete, Path("fleet", "organizations", id), nil, nil)
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Members lists all members of an organisation.
func (c *Client) Members(ctx context.Context, orgID string) ([]MemberPerson, error) {
	var answer struct {
		Members []MemberPerson `json:"members"`
	}
	return answer.Members, c.Call(ctx, http.MethodGet, Path("organizations", orgID, "members"), nil, &answer)
}

// AddMember makes a person whom the installation knows a member.
func (c *Client) AddMember(ctx context.Context, orgID, email, role string) (*MemberPerson, error) {
	var made MemberPerson
	body := Fields{"email": email, "role": role}
	return &made, c.Call(ctx, http.MethodPost, Path("organizations", orgID, "members"), body, &made)
}

// ChangeMember gives a member another role.
func (c *Client) ChangeMember(ctx context.Context, orgID, memberID, role string) error {
	return c.Call(ctx, http.MethodPatch, Path("organizations", orgID, "members", memberID), Fields{"role": role}, nil)
}

// RemoveMember ends a membership. One that does not exist is no error.
func (c *Client) RemoveMember(ctx context.Context, orgID, memberID string) error {
	err := c.Call(ctx, http.MethodDelete, Path("organizations", orgID, "members", memberID), nil, nil)
	if IsNotFound(err) {
		return nil
	}
	return err
}
